"""Counts, ranks, verbs and durations in words, the same in every sentence and table."""

from __future__ import annotations

from collections.abc import Collection

from distdbg.model import fold_ranks

#: Verbs whose plural is not the singular without its `s`.
_PLURALS = {"is": "are", "was": "were", "has": "have", "does": "do", "itself": "themselves"}


def duration(seconds: float) -> str:
    """`0.8 s`, `42 s`, `3 min 20 s`, `5 h 2 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def counted(count: int, noun: str, nouns: str = "") -> str:
    """`1 rank`, `2,000 ranks`. `nouns`: the plural, where it is not the noun with an `s`."""
    return f"{count:,} {noun if count == 1 else nouns or f'{noun}s'}"


def name_ranks(ranks: Collection[int]) -> str:
    """`rank 3`, `ranks 0-2,7`."""
    return f"rank{'' if len(ranks) == 1 else 's'} {fold_ranks(ranks)}"


def plural(phrase: str, who: Collection[object]) -> str:
    """`sleeps` of one rank or node, `sleep` of several: only the first word of a phrase is its verb."""
    if len(who) == 1:
        return phrase
    verb, _, rest = phrase.partition(" ")
    verb = _PLURALS.get(verb, verb.removesuffix("s"))
    return f"{verb} {rest}".strip().replace(" its own", " their own")


def size(number: float) -> str:
    """`812 MB`, `1.2 GB`: as disks and networks count."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= factor:
            return f"{number / factor:.{0 if number >= 100 * factor else 1}f} {unit}"
    return f"{number:.0f} bytes"
