"""Compare two snapshots: which stacks hold more. Stacks are the same if the user's lines are."""

from __future__ import annotations

from dataclasses import dataclass

from distdbg.evidence.memory.answer import MemoryAnswer, Moment, StackInfo


@dataclass(frozen=True)
class Change:
    """One stack's bytes and allocations in A and in B."""

    stack: StackInfo
    before: int
    after: int
    count_before: int
    count_after: int

    @property
    def grown(self) -> int:
        return self.after - self.before


@dataclass(frozen=True)
class Difference:
    """At the peak of each, or at the end of each."""

    when: str
    before: int
    after: int
    reserved_before: int
    reserved_after: int
    changes: tuple[Change, ...]
    kinds: tuple[tuple[str, int, int], ...]
    #: in A and in B, what could not be compared by stack: too small to be named on both sides
    others: tuple[int, int] = (0, 0)


def difference(a: MemoryAnswer, b: MemoryAnswer) -> list[Difference]:
    """At the peaks and at the ends; the largest change first."""
    return [_moments("at the peak", a, a.peak, b, b.peak), _moments("at the end", a, a.last, b, b.last)]


def _moments(when: str, a: MemoryAnswer, before: Moment, b: MemoryAnswer, after: Moment) -> Difference:
    left, right = _by_lines(a, before), _by_lines(b, after)
    nothing = (None, 0, 0)
    changes = []
    others = [before.active, after.active]
    for key in dict.fromkeys((*left, *right)):
        if (key not in left and before.rest) or (key not in right and after.rest):
            continue  # it may be among those that are not named there: nothing is no fact
        first, size_a, count_a = left.get(key, nothing)
        second, size_b, count_b = right.get(key, nothing)
        stack = second or first
        others = [others[0] - size_a, others[1] - size_b]
        if stack is not None and size_a != size_b:
            changes.append(Change(stack, size_a, size_b, count_a, count_b))
    kinds = [(k, before.kinds.get(k, 0), after.kinds.get(k, 0)) for k in dict.fromkeys((*before.kinds, *after.kinds))]
    return Difference(
        when,
        before.active,
        after.active,
        before.reserved,
        after.reserved,
        tuple(sorted(changes, key=lambda c: -abs(c.grown))),
        tuple(sorted(kinds, key=lambda k: -abs(k[2] - k[1]))),
        (others[0], others[1]),
    )


def _by_lines(answer: MemoryAnswer, moment: Moment) -> dict[tuple[str, ...], tuple[StackInfo | None, int, int]]:
    found: dict[tuple[str, ...], tuple[StackInfo | None, int, int]] = {}
    for holder in moment.holders:
        stack = answer.stacks[holder.stack]
        key = (stack.label, stack.phase, *stack.callers)
        _, size, count = found.get(key, (None, 0, 0))
        found[key] = (stack, size + holder.bytes, count + holder.count)
    return found
