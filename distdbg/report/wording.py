"""Durations, counts and ranks in words, the same in every output."""

from __future__ import annotations

from distdbg.evidence.rank_set import RankSet

_MOST_RANKS = 36


def duration(seconds: float) -> str:
    """`0.8 s`, `42 s`, `3 min 20 s`, `5 h 2 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def counted(count: int, noun: str) -> str:
    """`1 rank`, `2 ranks`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def ranks_words(ranks: RankSet, most: int = _MOST_RANKS) -> str:
    """`rank 2`, `ranks 0-2,4-7 (7)`, `no known rank`; a long list is cut."""
    if not ranks:
        return "no known rank"
    return f"rank {ranks.first}" if len(ranks) == 1 else f"ranks {ranks.text(most)} ({len(ranks)})"
