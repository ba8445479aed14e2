"""Detect tensors that live until the garbage collector runs, because an object refers to itself and to them."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.failures.findings import who
from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.rules import rule
from distdbg.evidence.memory.answer import gib
from distdbg.evidence.run import RunEvidence
from distdbg.model import Citation, Finding

_COUNTS = 2


@rule("reference-cycle", needs=("rank.memory",))
def reference_cycle(run: RunEvidence) -> Iterable[Finding]:
    found = [(rank, rank.memory.cycles) for rank in run.ranks if rank.memory and len(rank.memory.cycles) >= _COUNTS]
    if not found:
        return
    ranks = tuple(rank.rank for rank, _ in found)
    rank, cycles = max(found, key=lambda one: max(cycle.bytes for cycle in one[1]))
    worst = max(cycles, key=lambda cycle: cycle.bytes)
    owner = f", held by {worst.owner}" if worst.owner else ""
    yield build_finding(
        "reference-cycle",
        ranks,
        f"{gib(worst.bytes)} of tensors were freed by the garbage collector only{owner} ({who(run, ranks)})",
        f"{worst.freed} of the tensors watched up to step {worst.step} went in the middle of a collection.",
        confidence="certain",
        step=worst.step,
        evidence=(Citation(f"{rank.memory.path if rank.memory else ''}/facts.jsonl", worst.line, "cycles"),),
    )
