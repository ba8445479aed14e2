"""The findings of memory snapshots as a report: the same checks that judge a run, on snapshots alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from distdbg.checks._snapshots import overflowed
from distdbg.evidence.memory_answer import BEFORE_RECORDING, MemoryAnswer, gib
from distdbg.evidence.run import RunEvidence
from distdbg.model import CauseClass, Finding, Report, Unknown
from distdbg.report.verdict import build_report

#: Of a whole run, what is told of its memory.
_OURS = {"memory-leak", "host-memory-growth", "fragmentation", "untracked-gpu-memory", "peak-too-high", "cuda-oom",
         "host-oom", "graph-retained", "reference-cycle"}  # fmt: skip

#: What runs out in a backward is tried again with a forward: that alone looks like a step's end.
_STEPS_AFTER = 2


def memory_report(
    answers: Sequence[MemoryAnswer], unread: Sequence[tuple[str, str]] = (), run: RunEvidence | None = None
) -> Report:
    """`unread` are files and why they gave nothing; `run` is what else is known, where all of it is one run's."""
    unknown = [Unknown(name, why) for name, why in unread]
    unknown += [one for answer in answers for one in _unknown(answer)]
    empty = RunEvidence({}, 0, (), ())
    evidence = replace(run or empty, unknown=tuple(unknown), snapshots=tuple(answers))
    report = build_report(evidence)
    found = (finding for finding in report.findings if finding.id in _OURS)
    findings = tuple(found) if run else _gone_on(answers, found)
    return replace(
        report, findings=findings, unknown=tuple(unknown), run=None, outcome=None, exit_code=None, exit_code_of=None
    )


def _gone_on(answers: Sequence[MemoryAnswer], findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """A file alone does not say how its job ended. Steps that ended after a failed request do: a script that looks for
    a batch that fits has caught it."""
    steps = {(a.path, f"segments as they were at event {a.oom.event}"): a.oom.steps_after for a in answers if a.oom}
    after = ((f, max((steps.get((c.path, c.where or ""), 0) for c in f.evidence), default=0)) for f in findings)
    return tuple(_caught(finding, since) for finding, since in after)


def _caught(finding: Finding, steps: int) -> Finding:
    if steps < _STEPS_AFTER:
        return finding
    summary = f"{finding.summary}; it went on for {steps:,} steps"
    return replace(finding, severity="info", cause_class=CauseClass.OBSERVATION, summary=summary)


def _unknown(answer: MemoryAnswer) -> Iterator[Unknown]:
    """What a reader must know beside the figures."""
    where = f"{answer.path}, device {answer.device}"
    if not answer.events:
        yield Unknown(f"how {where} came to this", "it has no trace: only what stood when it was written")
    elif overflowed(answer):
        yield Unknown(
            f"what came before in {where}",
            f"its trace is not whole: {answer.dropped_blocks} blocks that stand have a stack and no allocation. A ring "
            "dropped its oldest events (max_entries), or recording was begun twice",
        )
    elif stood := answer.peak.kinds.get(BEFORE_RECORDING, 0):
        yield Unknown(
            f"who made {gib(stood)} that stands at the peak of {where}", "it was allocated before recording began"
        )
    if answer.leaks_unknown and answer.events:
        yield Unknown(f"whether {where} leaks", answer.leaks_unknown)
