"""The findings of memory snapshots as a report: the same checks that judge a run, on snapshots alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from distdbg.diagnosis.memory._snapshots import overflowed
from distdbg.diagnosis.verdict import build_report
from distdbg.evidence.memory.answer import BEFORE_RECORDING, MemoryAnswer, gib
from distdbg.evidence.run import RunEvidence
from distdbg.model import Report, Unknown

#: Of a whole run, what is told of its memory.
_OURS = {"memory-leak", "host-memory-growth", "fragmentation", "untracked-gpu-memory", "peak-too-high", "cuda-oom",
         "host-oom", "graph-retained", "reference-cycle"}  # fmt: skip


def memory_report(
    answers: Sequence[MemoryAnswer], unread: Sequence[tuple[str, str]] = (), run: RunEvidence | None = None
) -> Report:
    """`unread` are files and why they gave nothing; `run` is what else is known, where all of it is one run's."""
    unknown = [Unknown(name, why) for name, why in unread]
    unknown += [one for answer in answers for one in _unknown(answer)]
    empty = RunEvidence({}, 0, (), ())
    evidence = replace(run or empty, unknown=tuple(unknown), snapshots=tuple(answers))
    report = build_report(evidence)
    findings = tuple(finding for finding in report.findings if finding.id in _OURS)
    return replace(
        report, findings=findings, unknown=tuple(unknown), run=None, outcome=None, exit_code=None, exit_code_of=None
    )


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
