"""Detect a rank whose own memory on the host grows with its steps."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.diagnosis.failures.findings import who
from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.memory._growing import Growing, children_growing, growing
from distdbg.diagnosis.memory._kept import accounts_for, fills, keeps
from distdbg.diagnosis.rules import rule
from distdbg.evidence.memory.answer import gib
from distdbg.evidence.run import RunEvidence
from distdbg.model import Citation, Finding


@rule("host-memory-growth", needs=("node.memory", "rank.memory"))
def host_memory_growth(run: RunEvidence) -> Iterable[Finding]:
    yield from _workers(run)
    found = [one for one in growing(run) if one.lasts or one.soon]
    filling = fills(run) if found else []
    found = [one for one in found if not accounts_for(filling, one, device=False)]
    if not found:
        return
    ranks = tuple(sorted(one.rank.rank for one in found))
    worst = max(found, key=lambda one: one.growth.slope)
    explanation = _explanation(run, found)
    yield build_finding(
        "host-memory-growth",
        ranks,
        f"the memory of {who(run, ranks)} grows by {worst.growth.pace}" + _end(worst),
        _cause(worst),
        confidence="likely" if all(one.certain for one in found) else "possible",
        remedy=_remedy(found, explanation),
        step=worst.growth.last,
        explained_by=explanation,
        evidence=(one.citation for one in found[:3]),
    )


def _workers(run: RunEvidence) -> Iterable[Finding]:
    """The loaders' workers, each a process of its own: what a data set keeps grows there, and not in the rank."""
    found = [(one, child) for one, child in children_growing(run) if one.lasts or one.soon]
    if not found:
        return
    worst, child = max(found, key=lambda pair: (pair[0].ends_at is not None, pair[0].growth.slope))
    trend = worst.growth
    more = f"; so does that of {len(found) - 1} more" if len(found) > 1 else ""
    which = child.who.replace("its", f"rank {worst.rank.rank}'s", 1)
    levels = " -> ".join(map(gib, trend.levels))
    yield build_finding(
        "host-memory-growth",
        {one.rank.rank for one, _ in found},
        f"the memory of {which} grows by {trend.pace}{more}{_end(worst)}",
        f"It was {gib(trend.levels[0])} at step {trend.first} and {gib(trend.levels[-1])} at step {trend.last}.",
        remedy="Look at what the data set keeps: caches, and large lists of Python objects, whose pages each worker "
        "comes to own by reading them. Arrays of numpy or torch, or memory-mapped files, stay shared.",
        confidence="likely" if all(one.lasts for one, _ in found) else "possible",
        step=trend.last,
        evidence=(Citation(worst.path, None, f"children, process {child.pid}", levels),),
    )


def _end(one: Growing) -> str:
    return "" if one.ends_at is None else f": {one.of} would be full at about step {one.ends_at:,}"


def _cause(one: Growing) -> str:
    trend = one.growth
    epochs = f", over {trend.epochs} ends of an epoch" if trend.epochs > 0 else ""
    swells = " Each step needs more than those before, too: are its sequences or batches longer?" if one.swells else ""
    levels = f"{gib(trend.levels[0])} at step {trend.first} and {gib(trend.levels[-1])} at step {trend.last}"
    return f"It was {levels}{epochs}.{swells}"


def _remedy(found: list[Growing], explanation: str | None) -> str:
    """What to do. With --memory the containers are counted: the rest is memory that none of them holds."""
    if explanation is not None:
        return f"Mend what `{explanation}` names, and look again."
    counted = [one.rank.memory.counted_at for one in found if one.rank.memory is not None]
    if len(counted) < len(found):
        return ""  # the catalogue's
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
    """The id of the finding that explains most of the growth of each of these ranks; None where there is none."""
    named = keeps(run)
    if all(accounts_for(named, one, device=False) for one in found):
        return "memory-leak"
    graphs = {rank.rank for rank in run.ranks if any(fact.guard == "graph-retained" for fact in rank.guards)}
    return "graph-retained" if {one.rank.rank for one in found} <= graphs else None
