"""Select the rules that a text can concern by the words in it, before anything of it is parsed or indexed."""

from __future__ import annotations

import re
from collections.abc import Set

#: every group of a rule's needs must have a word in the text: one of a set, or one that a pattern finds
Needs = tuple[Set[str] | re.Pattern[str], ...]

_WORD = re.compile(r"(?:def\s+)?[^\W\d]\w*\(?")
#: the text knows of ranks (see diagnosis/waits/rank_conditions.py), or starts a process group
RANK_WORDS = re.compile(
    r"rank|(?:gpu|device)_?(?:id|idx|index)|^gpu$|is_\w*(?:main|master|primary|zero|chief|root|coordinator|first|last)|(?:main|master)_proc|process_(?:index|id|zero|group)|"
    r"stage_i|PROCID|LOCALID|NODEID|init_dist|on_(?:main|last|master|process)|^(?:main|master|primary|chief|coordinator)_|DDP|FSDP",
    re.IGNORECASE,
)


def words_of(text: str) -> frozenset[str]:
    """Every word, and `word(` for those that are called."""
    found = set(_WORD.findall(text))
    defined = {word for word in found if word[:3] == "def" and word[3:4].isspace()}
    found -= defined
    found |= {word[:-1] for word in found if word[-1] == "("}
    return frozenset(found.union(word[3:].strip(" \t\r\n\f\v(") for word in defined))


def met(needs: Needs, words: Set[str]) -> bool:
    """Has the text a word of every group?"""
    if words is not _last[0]:
        _try(words)
    return all(not (_fits(g) if isinstance(g, re.Pattern) else g).isdisjoint(words) for g in needs)


#: the words that were asked about last, all words that were asked about, and what each pattern finds among them
_last: list[Set[str]] = [frozenset()]
_tried: set[str] = set()
_found: dict[re.Pattern[str], set[str]] = {}


def _try(words: Set[str]) -> None:
    """Each word is tried with each pattern once in a process."""
    new = words - _tried
    for pattern, found in _found.items():
        found.update(filter(pattern.search, new))
    _tried.update(new)
    _last[0] = words


def _fits(pattern: re.Pattern[str]) -> Set[str]:
    if pattern not in _found:
        _found[pattern] = set(filter(pattern.search, _tried))
    return _found[pattern]
