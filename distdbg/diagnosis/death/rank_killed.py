"""A signal ended a rank that nobody had asked to stop."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import replace

from distdbg.diagnosis.death._memory import killed_for_memory, sizes, why_not_known
from distdbg.diagnosis.failures.findings import failure_finding, groups, who_failed
from distdbg.diagnosis.failures.of_ranks import RankFailure, failures
from distdbg.diagnosis.rules import rule
from distdbg.evidence.exit_status import signal_name
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding
from distdbg.wording import plural

_MEANING = {
    signal.SIGSEGV: "native code touched memory that is not its own",
    signal.SIGABRT: "native code gave up (abort)",
    signal.SIGBUS: "a mapped file or shared memory had no page behind it: often a full /dev/shm or a file cut short",
    signal.SIGILL: "an instruction that this CPU does not know: a library built for another CPU",
    signal.SIGFPE: "an arithmetic error in native code, such as an integer division by zero",
    signal.SIGTERM: "somebody outside this job asked the process to end: a person, a scheduler, a container's stop",
    signal.SIGINT: "somebody interrupted the process",
    signal.SIGHUP: "its terminal or session ended",
    signal.SIGXCPU: "it used more CPU time than its limit (ulimit -t)",
    signal.SIGXFSZ: "it wrote a file larger than its limit (ulimit -f)",
}
_LOOK = {
    signal.SIGKILL: "Look at the node's memory (`dmesg -T | grep -i kill` as root), at the scheduler's log and at "
    "other users of the node.",
    signal.SIGBUS: "Check `df -h /dev/shm` and the disk that mapped files lie on.",
    signal.SIGILL: "Reinstall the library that the stack names for this CPU.",
}


@rule("rank-killed", of_failures=True)
def rank_killed(evidence: RunEvidence) -> Iterable[Finding]:
    killed = [f for f in failures(evidence) if f.finding == "rank-killed" and not killed_for_memory(evidence, f)]
    for group in groups(killed):
        yield _finding(evidence, group)


def _finding(evidence: RunEvidence, group: list[RankFailure]) -> Finding:
    lead = group[0]
    base = failure_finding(evidence, group)
    if lead.signal is None:  # a log says that it was, and not by which signal
        return base
    number = lead.signal
    name = signal_name(number)
    ranks = who_failed(evidence, group)
    crashed = number in _MEANING and number < signal.SIGTERM and number not in (signal.SIGINT, signal.SIGHUP)
    verb = "crashed with" if crashed else plural("was killed by", base.ranks)
    step = f" at step {lead.rank.step}" if lead.rank.step else ""
    at = f" in {lead.where}" if lead.where else ""
    summary = f"{ranks} {verb} {name}{step}{at}"
    if lead.headline:
        summary += f": {lead.headline}"
    cause = _MEANING.get(signal.Signals(number), "") if number in list(signal.Signals) else ""
    if number == signal.SIGKILL:
        node = evidence.node_of(lead.rank)
        cause = f"Who sent it is unknown, because {why_not_known(node)}. {sizes(node, lead.rank)}".strip()
    elif cause:
        cause = f"{name}: {cause}."
    if crashed and not lead.where and not lead.headline:
        cause += " No stack: faulthandler was not on, or standard error was lost."
    return replace(base, summary=summary, cause=cause, remedy=_remedy(number, lead))


def _remedy(number: int, lead: RankFailure) -> str:
    if number in _LOOK:
        return _LOOK[signal.Signals(number)]
    if lead.where is not None:
        return f"Look at {lead.where.file}:{lead.where.line} and at the native library that it calls."
    if number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        return "Look at the scheduler's log and at what else runs on the node; the kernel records no sender."
    return "Run again with PYTHONFAULTHANDLER=1 (distdbg's default preset sets it) to see the Python line."
