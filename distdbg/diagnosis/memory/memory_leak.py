"""Detect memory that grows from step to step, by the stack that allocated it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.memory._growing import full_at
from distdbg.diagnosis.memory._kept import keeps, kept, standing_grows
from distdbg.diagnosis.memory._snapshots import stack_citation
from distdbg.diagnosis.rules import rule
from distdbg.evidence.frames import FORWARD, OPTIMIZER
from distdbg.evidence.memory.answer import Leak, MemoryAnswer, StackInfo, gib
from distdbg.evidence.memory.growth import Point
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding
from distdbg.wording import name_ranks

_MOST = 5


@rule("memory-leak", needs=("rank.memory", "snapshots"))
def memory_leak(evidence: RunEvidence) -> Iterator[Finding]:
    """Each line's leak once, with all ranks that have it; then what the ranks have counted while they ran."""
    named = keeps(evidence)
    yield from kept(evidence, named)
    yield from standing_grows(evidence, named)
    same: dict[tuple[str, ...], list[tuple[MemoryAnswer, Leak]]] = {}
    for answer in evidence.snapshots:
        for leak in answer.leaks[:_MOST]:
            stack = answer.stacks[leak.stack]
            same.setdefault((stack.label, *stack.callers), []).append((answer, leak))
    ranked = sorted(same.values(), key=lambda g: -max(leak.slope for _, leak in g))
    points = {rank.rank: rank.memory.points for rank in evidence.ranks if rank.memory is not None}
    yield from (_finding(group, points) for group in ranked[:_MOST])


def _finding(group: list[tuple[MemoryAnswer, Leak]], points: Mapping[int, Sequence[Point]]) -> Finding:
    """`points` of ranks that have memory lines: they know how much of the device is left."""
    answer, leak = max(group, key=lambda pair: pair[1].slope)
    stack = answer.stacks[leak.stack]
    ranks = sorted({rank for one, _ in group for rank in one.ranks})
    who = name_ranks(ranks) if len(ranks) > 1 else answer.who
    keep = "keep" if len(ranks) > 1 else "keeps"
    speed = f"{gib(leak.slope)} a step, {gib(leak.points[-1])} after {answer.steps} steps"
    if answer.rank is not None:
        speed += full_at(points.get(answer.rank, ()), leak.slope)
    middle = leak.points[len(leak.points) // 2]
    called = f" It is called from {stack.callers[1]}." if len(stack.callers) > 1 else ""
    return build_finding(
        "memory-leak",
        ranks,
        f"{who} {keep} more and more of what {stack.label} allocates: {speed}",
        f"It held {gib(leak.points[0])} at the first, {gib(middle)} at the middle and {gib(leak.points[-1])} at the "
        f"last boundary (steps by {answer.steps_from}).{called}",
        confidence="certain" if answer.steps >= 8 else "likely",
        remedy=_remedy(stack),
        evidence=(stack_citation(answer, stack, f"{leak.count} allocations that outlive their step"),),
    )


def _remedy(stack: StackInfo) -> str:
    if stack.phase == FORWARD:
        return (
            "Find what keeps this tensor or its graph: a list or an attribute that collects it, a loss added up as a "
            "tensor. Keep `.item()`, or `.detach()` before it goes into the next batch."
        )
    if stack.phase == OPTIMIZER:
        return "Optimizer state grows: are parameters added, or optimizers made, again and again?"
    return f"Find what keeps what {stack.label} makes, and let it go: a list, a dict, an attribute, a closure."
