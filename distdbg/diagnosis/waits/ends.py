"""Find the ranks that all waits lead to: the culprits of a hang, and circles of ranks that wait for one another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from distdbg.diagnosis.timeline.standing import Standing
from distdbg.diagnosis.waits.graph import Wait


@dataclass(frozen=True)
class Ends:
    """`sinks` wait for no rank and are waited for; `circles` wait for one another; `complete` lack nobody.

    `unread` are ranks of which nothing was collected, and one of which at least has not come to an operation that all
    other members wait in. Which one is not known.
    """

    sinks: tuple[int, ...]
    circles: tuple[tuple[int, ...], ...]
    complete: tuple[Wait, ...]
    unread: tuple[int, ...] = ()


def find_ends(waits: Iterable[Wait], standings: Mapping[int, Standing], unread: Collection[int] = ()) -> Ends:
    """Find Tarjan's strongly connected components over ranks and waits; those that no arrow leaves are the ends.

    Nothing was collected of the ranks in `unread`, so it is not known whether they have come: an operation that another
    rank is missing from does not point to them.
    """
    waits = list(waits)
    arrows: dict[int, set[int]] = defaultdict(set)  # ranks as they are, wait n as -n - 1
    one_of_several: set[int] = set()
    for number, wait in enumerate(waits):
        for rank in wait.waiting:
            if standings[rank].doing.waits_for_ranks:  # a host that does something else goes on when that is over
                arrows[rank].add(-number - 1)
        missing = {rank for rank in wait.awaited if rank not in unread} if wait.needs_all else set()
        arrows[-number - 1].update(missing or wait.awaited)
        if wait.needs_all and not missing and len(wait.awaited) > 1:
            one_of_several.update(wait.awaited)
    sinks: set[int] = set()
    circles = []
    for component in _components(arrows):
        leaves = any(target not in component for node in component for target in arrows.get(node, ()))
        ranks = tuple(sorted(n for n in component if n >= 0))
        if leaves or not ranks:
            continue
        if len(component) == 1 and not standings[ranks[0]].doing.waits_for_ranks:
            sinks.update(ranks)
        elif len(ranks) > 1:
            circles.append(ranks)
    complete = tuple(w for w in waits if not w.awaited)
    return Ends(
        tuple(sorted(sinks - one_of_several)), tuple(sorted(circles)), complete, tuple(sorted(sinks & one_of_several))
    )


def _components(arrows: Mapping[int, set[int]]) -> list[set[int]]:
    """Iterative, since 16,384 ranks are deeper than Python's own stack."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    found: list[set[int]] = []
    for root in list(arrows):
        if root in index:
            continue
        work = [(root, iter(sorted(arrows.get(root, ()))))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, targets = work[-1]
            target = next(targets, None)
            if target is not None:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(sorted(arrows.get(target, ())))))
                elif target in on_stack:
                    low[node] = min(low[node], index[target])
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[node])
            if low[node] == index[node]:
                component = set()
                while node not in component:
                    component.add(top := stack.pop())
                    on_stack.discard(top)
                found.append(component)
    return found
