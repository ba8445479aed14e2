"""Select the rules that a text can concern by the words in it, before anything of it is parsed or indexed."""

from __future__ import annotations

import re
from collections.abc import Set
from functools import cache

#: every group of a rule's needs must have a word in the text: one of a set, or one that a pattern finds
Needs = tuple[Set[str] | re.Pattern[str], ...]

_WORD = re.compile(r"(def\s+)?([^\W\d]\w*)(\()?")
#: the text knows of ranks (see diagnosis/waits/rank_conditions.py), or starts a process group
RANK_WORDS = re.compile(
    r"rank|(?:gpu|device)_?(?:id|idx|index)|^gpu$|is_\w*(?:main|master|primary|zero|chief|root|coordinator|first|last)|(?:main|master)_proc|process_(?:index|id|zero|group)|"
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


def met(needs: Needs, words: Set[str]) -> bool:
    """Has the text a word of every group?"""
    sets_first = sorted(needs, key=lambda group: isinstance(group, re.Pattern))
    return all(not _fitting(group, words).isdisjoint(words) for group in sets_first)


def _fitting(group: Set[str] | re.Pattern[str], words: Set[str]) -> Set[str]:
    """Words of the group, at least those that are among `words`; each word is tried once in a process."""
    if not isinstance(group, re.Pattern):
        return group
    fits, tried = _known(group)
    new = words - tried
    fits.update(filter(group.search, new))
    tried |= new
    return fits


@cache
def _known(_pattern: re.Pattern[str]) -> tuple[set[str], set[str]]:
    """(words that it finds, words that were tried)."""
    return set(), set()
