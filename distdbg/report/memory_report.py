"""Build the report and the document of memory snapshots, by the rules that judge a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from distdbg.diagnosis.verdict import build_report
from distdbg.evidence.memory.answer import BEFORE_RECORDING, MemoryAnswer, gib
from distdbg.evidence.run import RunEvidence
from distdbg.model import Report, Unknown
from distdbg.report.document import Block, Document, Section
from distdbg.report.memory_json import memory_plain

#: The findings of a whole run that are about memory.
_OURS = {"memory-leak", "host-memory-growth", "fragmentation", "untracked-gpu-memory", "peak-too-high", "cuda-oom",
         "host-oom", "graph-retained", "reference-cycle"}  # fmt: skip


@dataclass(frozen=True)
class MemoryUse(Block):
    """What fills the devices, and `ranks`: what the ranks of a run recorded over its steps, in lines."""

    answers: Sequence[MemoryAnswer]
    ranks: str = ""


def memory_document(report: Report, answers: Sequence[MemoryAnswer], ranks: str = "") -> Document:
    return Document(
        replace(report, run={}),
        sections=(Section("", (MemoryUse(answers, ranks),)),),
        json_keys=lambda: {"memory": memory_plain(answers)},
    )


def memory_report(
    answers: Sequence[MemoryAnswer], unread: Sequence[tuple[str, str]] = (), run: RunEvidence | None = None
) -> Report:
    """`unread` are files, and why they were not read; `run` is the evidence of the run, if it is one run's."""
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
        yield Unknown(f"how {where} got there", "it has no trace: only the memory when it was written")
    elif answer.overflowed:
        yield Unknown(
            f"what came before in {where}",
            f"its trace is not whole: {answer.dropped_blocks} live blocks have a stack and no allocation. A ring "
            "dropped its oldest events (max_entries), or recording was begun twice",
        )
    elif stood := answer.peak.kinds.get(BEFORE_RECORDING, 0):
        yield Unknown(f"what allocated {gib(stood)} of the peak of {where}", "it was allocated before recording began")
    if answer.leaks_unknown and answer.events:
        yield Unknown(f"whether {where} leaks", answer.leaks_unknown)
