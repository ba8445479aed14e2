"""Ranks are stuck at one place, for a reason of their own host, and the others wait for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import takewhile

from distdbg.diagnosis.failures.findings import who
from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.hang._stuck import citations, handled, quote_frames, side_of, since, step, waited
from distdbg.diagnosis.rules import rule
from distdbg.diagnosis.timeline.judge import stand
from distdbg.diagnosis.timeline.standing import Doing, Standing
from distdbg.diagnosis.waits.hang import Culprit, Hang, hang_of
from distdbg.diagnosis.waits.store_keys import said_of_setters
from distdbg.evidence.dump import Dump, RankDump
from distdbg.evidence.frames import Activity
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entry
from distdbg.model import CauseClass, Citation, Confidence, Finding, FindingDoc, grouped
from distdbg.wording import plural

#: The other ways in which a culprit can stand have rules of their own.
_IDS = {
    Doing.STOPPED: "process-stopped",
    Doing.LOADER: "stuck-in-dataloader",
    Doing.LOCK: "stuck-on-lock",
    Doing.IO: "stuck-on-io",
    Doing.NATIVE: "stuck-in-native",
    Doing.PYTHON: "stuck-in-python",
    Doing.DEVICE: "stuck-on-device",
}


#: What a rank does while it compiles: the compiler runs in Python and C++, reads files, and waits for processes.
_COMPILES_IN = (Doing.PYTHON, Doing.NATIVE, Doing.IO, Doing.LOCK)
_COMPILES = "compile-asymmetry"


@rule(*_IDS.values(), _COMPILES)
def stuck(evidence: RunEvidence) -> Iterable[Finding]:
    hang = hang_of(evidence)
    if hang is None:
        yield from _unnamed_at_devices(evidence.unnamed_processes)
    if hang is None or not hang.stands:
        return
    yield from _at_devices(evidence, hang)
    for culprit in hang.culprits:
        if culprit.standing.doing in _IDS and not (hang.starting and culprit.standing.passes):
            doc = entry(_COMPILES if _compiles(hang, culprit) else _IDS[culprit.standing.doing])
            yield _finding(evidence, hang, culprit, doc)


def _compiles(hang: Hang, culprit: Culprit) -> bool:
    """Return whether others wait for ranks that are inside of a compiler, in all looks."""
    if not culprit.waits or culprit.standing.doing not in _COMPILES_IN:
        return False
    dumps = [hang.dump.ranks[rank] for rank in culprit.ranks if rank in hang.dump.ranks]
    threads = [had.judged(look) for had in dumps for look in had.looks if look.threads]
    return bool(threads) and all(
        thread is not None and any(frame.activity is Activity.COMPILATION for frame in thread.frames)
        for thread in threads
    )


def _at_devices(evidence: RunEvidence, hang: Hang) -> Iterable[Finding]:
    """Stacks of some ranks of a job, all of which wait for their devices: what each one waits in, and no culprit."""
    for wait in hang.complete:
        standings = [hang.standings[rank] for rank in wait.waiting]
        if hang.dump.has_all_ranks or not wait.by_stacks or not all(standing.native_call for standing in standings):
            continue
        phrases = grouped((standing.phrase, standing.rank) for standing in standings)
        finding = _at_device(
            "; ".join(f"{who(evidence, tuple(r))} {plural(phrase, r)}" for phrase, r in phrases.items())
        )
        yield replace(
            finding,
            severity="error",
            ranks=wait.waiting,
            evidence=citations(hang, wait.waiting, ()),
        )


def _unnamed_at_devices(processes: tuple[RankDump, ...]) -> Iterable[Finding]:
    """Stacks of processes whose rank is not known, if all of them wait for their devices.

    One stack shows that a process waits, and not for how long: a healthy one does so for a moment, too.
    """
    dump = Dump("")
    standings = [stand(process, None, dump) for process in processes]
    if not all(standing.native_call for standing in standings):
        return
    for process, standing in zip(processes, standings, strict=True):
        name = f"process {process.pid}" if process.pid else "the process of this stack"
        thread = process.judged(process.first)
        quote = quote_frames(dump, thread.frames) if thread is not None else ""
        where = f"{name}, main thread, innermost first"
        finding = _at_device(f"{name} (its rank is not known) {standing.phrase}")
        yield replace(
            finding,
            cause="One stack does not show for how long it waits, and a healthy process waits for its device, too. "
            f"Take another one: if it is the same, the reason may be this. {finding.cause}",
            evidence=(Citation(process.first.threads_path, None, where, quote),),
        )


def _at_device(summary: str) -> Finding:
    return build_finding(
        "stuck-in-native",
        ranks=(),
        severity="warning",
        confidence="possible",
        summary=summary,
        cause="The device does not finish what was queued before: a kernel that does not end, or a collective in "
        "which another rank is missing. The stacks that were read do not show which.",
        remedy="Take the stacks and the flight recorders of all ranks (`distdbg hang-dump`), and look for CUDA "
        "errors and Xid messages of the GPU.",
        cause_class=CauseClass.STUCK,
    )


def _finding(evidence: RunEvidence, hang: Hang, culprit: Culprit, doc: FindingDoc) -> Finding:
    standing = culprit.standing
    subject = who(evidence, culprit.ranks)
    compiles = f"{plural('compiles', culprit.ranks)}, and " if doc.id == _COMPILES else ""
    summary = f"{subject} {compiles}{plural(standing.phrase, culprit.ranks)}{_at(standing)}"
    if culprit.waits:
        waiting = sorted({rank for wait in culprit.waits for rank in wait.waiting} - set(culprit.ranks))
        summary += f", while {who(evidence, tuple(waiting))} {plural('waits', waiting)} for " + (
            "it" if len(culprit.ranks) == 1 else "them"
        )
    at_work = hang.may_work(culprit)
    cause = [
        _line(hang, standing),
        _in_c(hang, standing),
        said_of_setters(standing, hang.dump),
        handled(evidence, culprit.ranks),
        waited(evidence, hang, culprit.waits),
    ]
    cause.append(_outlook(hang, culprit))
    return build_finding(
        doc.id,
        severity="warning" if at_work else "error",
        confidence="possible" if at_work else _confidence(hang, culprit),
        summary=summary,
        cause=" ".join(filter(None, cause)),
        remedy=doc.remedy,
        ranks=culprit.ranks,
        step=step(hang, culprit.ranks),
        evidence=citations(hang, culprit.ranks, [w for wait in culprit.waits for w in wait.waiting]),
        cause_class=CauseClass.STUCK,
        first_seen=since(hang, culprit.waits),
        side=side_of(culprit),
        place=hang.place_of(culprit.waits[:1]),
    )


def _outlook(hang: Hang, culprit: Culprit) -> str:
    """Whether it may come to an end by itself, as far as that was seen."""
    quiet_s = hang.quiet_of(culprit.ranks)
    if hang.may_work(culprit) and quiet_s is not None:
        return f"It may go on by itself: nothing was heard of it for {quiet_s:.0f} s only."
    if culprit.standing.busy:
        return "Its child processes compute: it may go on by itself."
    if hang.may_work(culprit) and hang.runs_at_times(culprit):
        return "It ran from time to time between the looks: it may be slow and no more, and go on by itself."
    if hang.computes(culprit):
        return "It went from line to line meanwhile: it may be slow and no more, and go on by itself."
    return ""


def _confidence(hang: Hang, culprit: Culprit) -> Confidence:
    """Certain where the whole chain was seen: the stack, the waiting ranks' operations, and that nothing moves."""
    if any(wait.either or (wait.by_stacks and wait.on_device) for wait in culprit.waits):
        return "possible"  # a host that is elsewhere may have enqueued all that the others wait for
    if not culprit.standing.sure or hang.dump.missing or hang.computes(culprit):
        return "likely"
    # where nobody listens and no recorder was had, it is only known to have stood there for the seconds of the looks
    heard = hang.dump.quiet_s is not None or hang.quiet_s is not None
    seen = all(wait.sequence is not None or (wait.awaited_known and heard) for wait in culprit.waits)
    return "certain" if seen and culprit.waits else "likely"


def _at(standing: Standing) -> str:
    if standing.worker or standing.frame is None or standing.doing is Doing.DEVICE:
        return ""
    return f" at {standing.frame.short}"


def _in_c(hang: Hang, standing: Standing) -> str:
    """Of native code the library that was called, and the function in it, where the C frames were taken."""
    had = hang.dump.ranks.get(standing.rank)
    if standing.doing is not Doing.NATIVE or had is None:
        return ""
    name = standing.thread.removeprefix("thread ")
    thread = had.native_judged if not name else next((t for t in had.native if name in (t.name, str(t.os_id))), None)
    inner = list(takewhile(lambda frame: frame.native, thread.frames if thread is not None else ()))
    called = next((frame for frame in inner if not frame.passes_on), next(iter(inner), None))
    return f"Its C code is {called.function} in {called.library or called.file}." if called is not None else ""


def _line(hang: Hang, standing: Standing) -> str:
    frame = standing.worker[0] if standing.worker else standing.frame
    if frame is None:
        return ""
    text = hang.dump.line(frame.file, frame.line)
    outer = (standing.worker or standing.frames)[1:2]
    called = f" Called from {outer[0].short}." if outer else ""
    return f"{frame.short} is: {text}.{called}" if text else f"It stands at {frame}.{called}"
