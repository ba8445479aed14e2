"""No rank has begun to train, and some do nothing: where each rank is. The job may still go on."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.failures.findings import who
from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.hang._stuck import citations, since
from distdbg.diagnosis.rules import rule
from distdbg.diagnosis.timeline.seen import parts
from distdbg.diagnosis.waits.divergence import divergence_of
from distdbg.diagnosis.waits.hang import Hang, hang_of
from distdbg.diagnosis.waits.undecided import apart_by_port, places
from distdbg.evidence.frames import Activity
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding
from distdbg.wording import name_ranks, plural

_STAGES = {
    Activity.LOCK_FILE: "a wait for a lock file",
    Activity.COMPILATION: "a compilation",
    Activity.DOWNLOAD: "a download",
    Activity.GROUP_SETUP: "the set-up of a process group",
    Activity.LOADER: "the wait for a batch",
    Activity.IMPORT: "an import",
}


@rule("start-stalled")
def start_stalled(evidence: RunEvidence) -> Iterable[Finding]:
    hang = hang_of(evidence)
    if hang is None or not hang.starting or divergence_of(evidence) is not None:
        return
    built = any(standing.build for standing in hang.standings.values())
    if built or hang.circles or any(not culprit.standing.passes for culprit in hang.culprits):
        return  # that has a finding of its own
    awaited = tuple(sorted(rank for culprit in hang.culprits for rank in culprit.ranks))
    ranks = awaited or tuple(sorted(hang.standings))
    yield build_finding(
        "start-stalled",
        confidence="certain",
        summary=f"{_how_far(hang)}{_awaited(evidence, hang, awaited)}: {places(hang)}",
        cause=f"{_stages(hang)}{_ports(hang)}{_no_rank(hang).capitalize()} has made a step or a call of "
        f"torch.distributed for "
        f"{hang.dump.quiet_s or 0.0:.0f} s. The job is not ended for that, and may go on by itself.",
        ranks=ranks,
        evidence=citations(hang, ranks, ()),
        first_seen=since(hang, hang.waits),
    )


def _no_rank(hang: Hang) -> str:
    return "no rank" if not hang.dump.missing else "no rank that was read"


def _how_far(hang: Hang) -> str:
    """Calls and backwards are few before a job's pace is known, or its steps are not those of an optimizer of torch."""
    pages = [page for had in hang.dump.ranks.values() if (page := had.last.page) is not None]
    calls, backwards = (max((getattr(p, name) or 0 for p in pages), default=0) for name in ("calls", "backwards"))
    made = [
        f"{count} {what}" for count, what in ((calls, "calls of torch.distributed"), (backwards, "backwards")) if count
    ]
    return f"{_no_rank(hang)} " + (f"goes on, after {' and '.join(made)}" if made else "has begun to train")


def _ports(hang: Hang) -> str:
    apart = apart_by_port(hang)
    return f"{apart[:1].upper()}{apart[1:]}. " if apart else ""


def _stages(hang: Hang) -> str:
    """`In an import: rank 1. In a download: rank 0. `: the first that a rank's library frames name."""
    ranks: dict[str, list[int]] = {}
    for rank, had in hang.dump.ranks.items():
        main = had.judged(had.first)
        busy_with = {frame.activity for frame in parts(main.frames)[0]} if main is not None else set()
        if stage := next((words for activity, words in _STAGES.items() if activity in busy_with), ""):
            ranks.setdefault(stage, []).append(rank)
    return "".join(f"In {stage}: {name_ranks(r)}. " for stage, r in ranks.items())


def _awaited(evidence: RunEvidence, hang: Hang, ranks: tuple[int, ...]) -> str:
    waiting = tuple(sorted({rank for wait in hang.waits for rank in wait.waiting}.difference(ranks)))
    if not ranks or not waiting:
        return ""
    return f", and {who(evidence, waiting)} {plural('waits', waiting)} for {who(evidence, ranks)}"
