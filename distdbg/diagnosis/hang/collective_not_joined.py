"""Ranks never came to an operation, and where they are instead is not known.

Stacks and flight recorders say so, or, where neither names anybody, NCCL's own counts of what each rank has launched,
or torch's monitored barrier.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from distdbg.diagnosis.failures.findings import who
from distdbg.diagnosis.failures.of_ranks import failures
from distdbg.diagnosis.failures.told_by_torch import absent_ranks, group_of_last_call
from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.hang._stuck import citations, side_of, since, waited
from distdbg.diagnosis.rules import rule
from distdbg.diagnosis.timeline.standing import Doing
from distdbg.diagnosis.waits.hang import Culprit, Hang, hang_of
from distdbg.diagnosis.waits.nccl_counts import launched_less
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.stacks.tracebacks import TracebackFrame
from distdbg.model import MOST_RANKS, CauseClass, Citation, Finding
from distdbg.wording import plural


@rule("collective-not-joined")
def collective_not_joined(evidence: RunEvidence) -> Iterable[Finding]:
    hang = hang_of(evidence)
    if hang is None or not hang.stands:
        yield from _at_monitored_barrier(evidence)
        return
    if not (hang.culprits or hang.circles or hang.mismatch is not None):
        yield from _as_nccl_counts(evidence, hang)
    for culprit in hang.culprits:
        if culprit.standing.doing not in (Doing.UNKNOWN, Doing.ENDED) or not culprit.waits:
            continue
        waiting = tuple(sorted({rank for wait in culprit.waits for rank in wait.waiting}))
        subject = who(evidence, culprit.ranks)
        newest = _newest(hang, culprit)
        phrase = culprit.standing.phrase if newest is None else f"has not enqueued it: its newest is number {newest}"
        yield build_finding(
            "collective-not-joined",
            confidence="possible" if culprit.standing.doing is Doing.UNKNOWN and newest is None else "likely",
            summary=f"{who(evidence, waiting)} {plural('waits', waiting)} in {culprit.waits[0].what} for "
            f"{subject}, which {plural(phrase, culprit.ranks)}",
            cause=" ".join(filter(None, (waited(evidence, hang, culprit.waits), _where(culprit, newest)))),
            ranks=culprit.ranks,
            evidence=citations(hang, culprit.ranks, waiting),
            cause_class=CauseClass.STUCK,
            first_seen=since(hang, culprit.waits),
            side=side_of(culprit),
            place=hang.place_of(culprit.waits[:1]),
        )


def _at_monitored_barrier(evidence: RunEvidence) -> Iterable[Finding]:
    """torch itself names them when the barrier's time is up. Silent where an error or an end of a rank explains it."""
    found = failures(evidence)
    if any(f.cause_class < CauseClass.STUCK for f in found):
        return
    for failure in found:
        group: Sequence[int] | None = group_of_last_call(evidence, failure)
        if group is None and failure.rank.from_log:
            group = range(MOST_RANKS)  # no log says which: mostly it is the default group, in which ranks are numbers
        absent = absent_ranks(failure, group) if group is not None else ()
        if not absent or any(r.own_exit_code == 0 for r in evidence.ranks if r.rank in absent):
            continue
        at = f" at {failure.where}" if failure.where is not None else ""
        yield build_finding(
            "collective-not-joined",
            confidence="possible" if isinstance(group, range) else "likely",
            summary=f"{who(evidence, absent)} did not come to the monitored barrier{at} in time, says torch",
            cause=" ".join(_last_calls(evidence, absent)),
            ranks=absent,
            evidence=(failure.citation,) if failure.citation is not None else (),
            cause_class=CauseClass.STUCK,
            first_seen=failure.t,
        )
        return


def _last_calls(evidence: RunEvidence, ranks: Iterable[int]) -> Iterable[str]:
    for rank in ranks:
        had = evidence.dump.ranks.get(rank) if evidence.dump is not None else None
        if had is not None and had.calls and had.calls[-1].file:
            last = had.calls[-1]
            place = TracebackFrame(last.file, last.line, last.function)
            yield f"The last call of torch.distributed by rank {rank} was {last.operation} at {place}."


def _newest(hang: Hang, culprit: Culprit) -> int | None:
    """The newest operation that all of them have enqueued in the group in question, by their recorders."""
    wait = culprit.waits[0]
    logs = [g.logs.get(rank) for g in hang.groups if g.name == wait.group for rank in culprit.ranks]
    known = {log.last for log in logs if log is not None and (log.sequence or log.enqueued)}
    newest = known.pop() if len(known) == 1 else None
    return newest if newest is not None and wait.sequence is not None and newest < wait.sequence else None


def _where(culprit: Culprit, newest: int | None) -> str:
    if newest is None or culprit.standing.doing is not Doing.UNKNOWN:
        return ""
    return f"Where the host is instead is not known: {culprit.standing.because}."


def _as_nccl_counts(evidence: RunEvidence, hang: Hang) -> Iterable[Finding]:
    """On GPUs all stacks may look alike. A process that NCCL does not reach comes first: the others wait for it."""
    for late in launched_less(hang.dump) or ():
        yield build_finding(
            "collective-not-joined",
            confidence="likely",
            summary=f"{who(evidence, late.ranks)} {plural(late.because, late.ranks)}, says NCCL itself",
            cause="Neither stacks nor flight recorders tell them from the others.",
            ranks=late.ranks,
            evidence=(Citation(hang.dump.communicators_path, where=late.where),),
            cause_class=CauseClass.STUCK,
            side="host",
        )
