"""The earliest operation at which the members of a group do not agree, and which of them are the few."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distdbg.diagnosis.timeline.groups import Group
from distdbg.diagnosis.timeline.standing import Standing
from distdbg.evidence.recorder.log import GroupLog, Signature, Signatures

#: Operations before the one in question that are compared with the past, the most first.
_CONTEXTS = (8, 4, 2)
#: The past is a rule where it agrees so often, at least.
TIMES_BEFORE = 3


@dataclass(frozen=True)
class Side:
    """Ranks that came with the same operation."""

    signature: Signature
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Mismatch:
    """`sides`, the largest first; those of equal size by their lowest rank. `open` where somebody still waits there.

    `unread` is the number of members of which no recorder was read: they may have come with either operation.
    """

    group: Group
    sequence: int
    sides: tuple[Side, ...]
    open: bool
    unread: int = 0

    @property
    def tie(self) -> bool:
        """No side is known to be the largest one."""
        return len(self.sides[0].ranks) - len(self.sides[1].ranks) <= self.unread

    @property
    def few(self) -> tuple[int, ...]:
        """Everybody but the largest side; all where there is no largest one."""
        sides = self.sides if self.tie else self.sides[1:]
        return tuple(sorted(rank for side in sides for rank in side.ranks))

    @property
    def many(self) -> tuple[int, ...]:
        return () if self.tie else self.sides[0].ranks

    @property
    def same_operation(self) -> bool:
        """Only sizes or types differ."""
        return len({side.signature.operation for side in self.sides}) == 1


def earliest_mismatch(
    groups: Sequence[Group], signatures: Signatures, standings: Mapping[int, Standing]
) -> Mismatch | None:
    """Of all groups' first disagreements the one that began first. The order of ranks does not matter."""
    found = [m for group in groups if (m := _first(group, signatures, standings)) is not None]
    return min(found, key=_began, default=None)


def _began(mismatch: Mismatch) -> tuple[int, str]:
    times = []
    for log in mismatch.group.logs.values():
        at = log.index(mismatch.sequence)
        if at is not None:
            times.append(log.created[at])
    return min(times, default=0), mismatch.group.name


def _first(group: Group, signatures: Signatures, standings: Mapping[int, Standing]) -> Mismatch | None:
    used = {rank: log for rank, log in sorted(group.logs.items()) if log.sequence}
    if len(used) < 2:
        return None
    reference = max(used.values(), key=lambda log: len(log.sequence))
    sequences = [s for log in used.values() if log is not reference and (s := _differ(reference, log)) is not None]
    if not sequences:
        return None
    sequence = min(sequences)
    sides: dict[int, list[int]] = defaultdict(list)
    still_open = False
    for rank, log in used.items():
        at = log.index(sequence)
        if at is not None:
            sides[log.signature[at]].append(rank)
            still_open |= not log.done[at] and rank in standings
    ordered = sorted(sides.items(), key=lambda side: (-len(side[1]), side[1]))
    unread = sum(rank not in group.logs for rank in group.ranks)
    return Mismatch(group, sequence, tuple(Side(signatures[n], tuple(r)) for n, r in ordered), still_open, unread)


def _differ(one: GroupLog, other: GroupLog) -> int | None:
    """The first sequence number that both have kept with different signatures."""
    first, last = max(one.sequence[0], other.sequence[0]), min(one.last, other.last)
    if first > last:
        return None
    a, b = one.index(first), other.index(first)
    if a is not None and b is not None:
        length = min(len(one.sequence) - a, len(other.sequence) - b)
        if one.signature[a : a + length] == other.signature[b : b + length]:
            return None
    theirs = dict(zip(other.sequence, other.signature, strict=True))
    for sequence, signature in zip(one.sequence, one.signature, strict=True):
        if theirs.get(sequence, signature) != signature:
            return sequence
    return None


@dataclass(frozen=True)
class LeftOut:
    """`ranks` have left out an operation that all had called at this point of a step `times` times before."""

    ranks: tuple[int, ...]
    times: int


def left_out(mismatch: Mismatch) -> LeftOut | None:
    """Which of two sides of equal size has left operations out: after the last few that all agreed in, the one side's
    operation always came before, and the other's always came equally many operations later. None where the past does
    not say so."""
    one, other = mismatch.sides
    log, others = (mismatch.group.logs[side.ranks[0]] for side in (one, other))
    at, there = log.index(mismatch.sequence), others.index(mismatch.sequence)
    if at is None or there is None:
        return None
    past = list(log.signature[:at])
    for length in _CONTEXTS:
        if length > len(past):
            continue
        follows = [n for n in range(length, len(past)) if past[n - length : n] == past[-length:]]
        if len(follows) < TIMES_BEFORE:
            continue
        for usual, skipped_to, side in (
            (log.signature[at], others.signature[there], other),
            (others.signature[there], log.signature[at], one),
        ):
            later = {past.index(skipped_to, n) - n if skipped_to in past[n:] else None for n in follows}
            if {past[n] for n in follows} == {usual} and len(later) == 1 and None not in later:
                return LeftOut(side.ranks, len(follows))
        return None
    return None
