"""Who is clearly slower than the rest, from rates that were measured between pairs of nodes. Never on noise.

Slow means two things at once: the best of its repetitions is below 0.4 of the median of the others' bests, and below
the worst repetition of any of them. Machines that share a switch with a busy job pass; one on a slower link does not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import median

Pair = tuple[str, str]
Rates = Mapping[Pair, Sequence[float]]
_RATIO = 0.4


def slow_nodes(rates: Rates) -> list[tuple[str, float, float]]:
    """(node, its best, the others' usual) for each node that is slow with every other; needs three nodes."""
    found = []
    for node in dict.fromkeys(name for pair in rates for name in pair):
        own = [rates[pair] for pair in rates if node in pair]
        others = [rates[pair] for pair in rates if node not in pair]
        if (judged := _slow(own, others)) is not None:
            found.append((node, *judged))
    # Where half of the nodes are slow, none is odd.
    return found if 2 * len(found) < len({name for pair in rates for name in pair}) else []


def slow_pairs(rates: Rates, but: Collection[str]) -> list[tuple[Pair, float, float]]:
    """The same for single pairs of nodes that are not slow themselves; needs four nodes, to tell whose link it is."""
    kept = {pair: times for pair, times in rates.items() if not set(pair) & set(but)}
    if len({name for pair in kept for name in pair}) < 4:
        return []
    found = []
    for pair, times in kept.items():
        others = [kept[other] for other in kept if other != pair]
        if (judged := _slow([times], others)) is not None:
            found.append((pair, *judged))
    return found


def _slow(own: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    if not own or not others:
        return None
    best, usual = max(map(max, own)), median(map(max, others))
    return (best, usual) if best < _RATIO * usual and best < min(map(min, others)) else None
