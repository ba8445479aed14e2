"""A rank's own memory on the host grows with its steps, and goes on growing."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.failures.findings import hosts, who
from distdbg.diagnosis.memory._growing import Growing, children_growing, growing
from distdbg.diagnosis.memory._kept import accounts_for, fills, keeps
from distdbg.diagnosis.rules import rule
from distdbg.evidence.memory.answer import gib
from distdbg.evidence.run import RunEvidence
from distdbg.findings import entry
from distdbg.model import Citation, Finding


@rule("host-memory-growth")
def host_memory_growth(run: RunEvidence) -> Iterable[Finding]:
    yield from _workers(run)
    found = [one for one in growing(run) if one.lasts or one.soon]
    filling = fills(run) if found else []
    found = [one for one in found if not accounts_for(filling, one, device=False)]
    if not found:
        return
    ranks = tuple(sorted(one.rank.rank for one in found))
    worst = max(found, key=lambda one: one.growth.slope)
    certain = all(one.certain for one in found)
    explanation = _explanation(run, found)
    yield Finding(
        "host-memory-growth",
        "warning",
        "likely" if certain else "possible",
        f"the memory of {who(run, ranks)} grows by {worst.growth.pace}" + _end(worst),
        cause=_cause(worst),
        remedy=_remedy(found, explanation),
        ranks=ranks,
        nodes=hosts(run, ranks),
        step=worst.growth.last,
        explained_by=explanation,
        evidence=tuple(one.citation for one in found[:3]),
    )


def _workers(run: RunEvidence) -> Iterable[Finding]:
    """The loaders' workers, each a process of its own: what a data set keeps grows there, and not in the rank."""
    found = [(one, child) for one, child in children_growing(run) if one.lasts or one.soon]
    if not found:
        return
    ranks = tuple(sorted({one.rank.rank for one, _ in found}))
    worst, child = max(found, key=lambda pair: (pair[0].ends_at is not None, pair[0].growth.slope))
    told = worst.growth
    more = f"; so does that of {len(found) - 1} more" if len(found) > 1 else ""
    which = child.who.replace("its", f"rank {worst.rank.rank}'s", 1)
    levels = " -> ".join(map(gib, told.levels))
    yield Finding(
        "host-memory-growth",
        "warning",
        "likely" if all(one.lasts for one, _ in found) else "possible",
        f"the memory of {which} grows by {told.pace}{more}{_end(worst)}",
        cause=f"It was {gib(told.levels[0])} at step {told.first} and {gib(told.levels[-1])} at step {told.last}.",
        remedy="Look at what the data set keeps: caches, and large lists of Python objects, whose pages each worker "
        "comes to own by reading them. Arrays of numpy or torch, or memory-mapped files, stay shared.",
        ranks=ranks,
        nodes=hosts(run, ranks),
        step=told.last,
        evidence=(Citation(worst.path, None, f"children, process {child.pid}", levels),),
    )


def _end(one: Growing) -> str:
    return "" if one.ends_at is None else f": {one.of} would be full at about step {one.ends_at:,}"


def _cause(one: Growing) -> str:
    told = one.growth
    epochs = f", over {told.epochs} ends of an epoch" if told.epochs > 0 else ""
    swells = " Each step needs more than those before, too: are its sequences or batches longer?" if one.swells else ""
    levels = f"{gib(told.levels[0])} at step {told.first} and {gib(told.levels[-1])} at step {told.last}"
    return f"It was {levels}{epochs}.{swells}"


def _remedy(found: list[Growing], explanation: str | None) -> str:
    """With --memory the containers have been counted: what is left is what none of them holds."""
    if explanation is not None:
        return f"Mend what `{explanation}` names, and look again."
    counted = [one.rank.memory.counted_at for one in found if one.rank.memory is not None]
    if len(counted) < len(found):
        return entry("host-memory-growth").remedy
    last = max((step for step in counted if step is not None), default=None)
    seen = (
        "No container has been counted so early: let it run longer."
        if last is None
        else f"The containers counted up to step {last} do not account for it."
    )
    return (
        f"{seen} Look for objects that hold the one before (state or losses chained from step to step), and for C "
        "libraries; `distdbg memory snapshot RUN`, early and late, shows which tensors are alive."
    )


def _explanation(run: RunEvidence, found: list[Growing]) -> str | None:
    """Where it is known for each of these ranks what is kept, and that is most of it, that is what grows."""
    named = keeps(run)
    if all(accounts_for(named, one, device=False) for one in found):
        return "memory-leak"
    graphs = {rank.rank for rank in run.ranks if any(fact.guard == "graph-retained" for fact in rank.guards)}
    return "graph-retained" if {one.rank.rank for one in found} <= graphs else None
