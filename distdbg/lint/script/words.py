"""Select the rules that a text can concern by the words in it, before anything of it is parsed or indexed."""

from __future__ import annotations

import re
from collections.abc import Collection, Set
from functools import lru_cache

#: every group of a rule's needs must have a word in the text: one of a set, or one that a pattern finds
Needs = tuple[Set[str] | re.Pattern[str], ...]

_WORD = re.compile(r"(def\s+)?([^\W\d]\w*)(\()?")
#: the text knows of ranks (see diagnosis/waits/rank_conditions.py), or starts a process group
RANK_WORDS = re.compile(
    r"rank|is_\w*(?:main|master|primary|zero|chief|root|coordinator|first|last)|(?:main|master)_proc|process_(?:index|id|zero|group)|"
    r"stage_i|PROCID|LOCALID|NODEID|init_dist|on_(?:main|last|master|process)|^(?:main|master|primary|chief|coordinator)_|DDP|FSDP",
    re.IGNORECASE,
)


def words_of(text: str) -> frozenset[str]:
    """Every word, and `word(` for those that are called."""
    found: set[str] = set()
    for defined, word, called in set(_WORD.findall(text)):
        found.add(word)
        if called and not defined:
            found.add(word + called)
    return frozenset(found)


def met(needs: Needs, words: Collection[str]) -> bool:
    """Has the text a word of every group?"""
    return all(
        any(_fits(group, w) for w in words) if isinstance(group, re.Pattern) else not group.isdisjoint(words)
        for group in sorted(needs, key=lambda g: isinstance(g, re.Pattern))
    )


@lru_cache(maxsize=1 << 16)
def _fits(pattern: re.Pattern[str], word: str) -> bool:
    return pattern.search(word) is not None
