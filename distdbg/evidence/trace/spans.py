"""Join, cut and measure stretches of time: sorted lists of (begin, end) that do not overlap."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

Span = tuple[float, float]
Spans = list[Span]


def union(spans: Iterable[Span], gap: float = 0.0) -> Spans:
    """Join spans that touch, overlap, or are at most `gap` apart; the result is sorted."""
    joined: Spans = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1] + gap:
            if end > joined[-1][1]:
                joined[-1] = (joined[-1][0], end)
        elif end > begin:
            joined.append((begin, end))
    return joined


def within(spans: Sequence[Span], begin: float, end: float) -> Spans:
    """What of them lies between begin and end."""
    first = bisect_right(spans, (begin, float("inf"))) - 1
    last = bisect_left(spans, (end, float("-inf")))
    cut = ((max(a, begin), min(b, end)) for a, b in spans[max(0, first) : last])
    return [(a, b) for a, b in cut if b > a]


def overlap(one: Sequence[Span], other: Sequence[Span]) -> Spans:
    """What lies in both."""
    found: Spans = []
    i = j = 0
    while i < len(one) and j < len(other):
        begin, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if end > begin:
            found.append((begin, end))
        if one[i][1] <= other[j][1]:
            i += 1
        else:
            j += 1
    return found


def without(one: Sequence[Span], other: Sequence[Span]) -> Spans:
    """What lies in one and not in the other."""
    left: Spans = []
    j = 0
    for first, end in one:
        begin = first
        while j < len(other) and other[j][1] <= begin:
            j += 1
        k = j
        while k < len(other) and other[k][0] < end:
            if other[k][0] > begin:
                left.append((begin, other[k][0]))
            begin = max(begin, other[k][1])
            k += 1
        if begin < end:
            left.append((begin, end))
    return left


def length(spans: Iterable[Span]) -> float:
    return sum(end - begin for begin, end in spans)
