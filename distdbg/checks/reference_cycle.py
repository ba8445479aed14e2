"""Tensors that live until the garbage collector comes by, for something points at itself and at them."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.checks._findings import hosts, who
from distdbg.evidence.memory_answer import gib
from distdbg.evidence.run import RunEvidence
from distdbg.model import Citation, Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="reference-cycle",
        severity="warning",
        title="tensors are freed by the garbage collector only",
        meaning="An object that points at itself, straight or round about, holds tensors: they stay when nobody needs "
        "them any more, until Python's collector happens to run. Memory rises and falls, and may run out in between.",
        how_seen="With --memory: of the live tensors that were watched through weak references, eight or more went "
        "in the middle of a collection, in two counts or more. Reference counting frees between collections.",
        remedy="Let go of the back reference (weakref, or `del` at the step's end). gc.collect() hides it, and costs.",
        source="https://pytorch.org/blog/understanding-gpu-memory-2/",
    ),
)
_COUNTS = 2


def check(run: RunEvidence) -> Iterable[Finding]:
    found = [(rank, rank.memory.cycles) for rank in run.ranks if rank.memory and len(rank.memory.cycles) >= _COUNTS]
    if not found:
        return
    ranks = tuple(rank.rank for rank, _ in found)
    rank, cycles = max(found, key=lambda one: max(cycle.bytes for cycle in one[1]))
    worst = max(cycles, key=lambda cycle: cycle.bytes)
    owner = f", held by {worst.owner}" if worst.owner else ""
    yield Finding(
        "reference-cycle",
        "warning",
        "certain",
        f"{gib(worst.bytes)} of tensors were freed by the garbage collector only{owner} ({who(run, ranks)})",
        cause=f"{worst.freed} of the tensors watched up to step {worst.step} went in the middle of a collection.",
        remedy=DOCS[0].remedy,
        ranks=ranks,
        nodes=hosts(run, ranks),
        step=worst.step,
        evidence=(Citation(f"{rank.memory.path if rank.memory else ''}/facts.jsonl", worst.line, "cycles"),),
    )
