"""Select the rules that a text can concern by the words in it, before anything of it is parsed or indexed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Set

#: words, or a pattern that finds some; nothing in it may match the end of a line
Words = Set[str] | re.Pattern[str]
#: every group of a rule's needs must have a word in the text: a group is one kind of words, or several
Needs = tuple[Words | tuple[Words, ...], ...]

_WORD = re.compile(r"[^\W\d]\w*\(?")
#: three times as fast, where a text has no other letters
_ASCII_WORD = re.compile(_WORD.pattern, re.ASCII)
_DEFINED = re.compile(r"def(?<!\wdef)\s+([^\W\d]\w*\()")
#: the text knows of ranks (see diagnosis/waits/rank_conditions.py), or starts a process group
RANK_WORDS = re.compile(
    r"rank|(?:gpu|device)_?(?:id|idx|index)|^gpu$|is_\w*(?:main|master|primary|zero|chief|root|coordinator|first|last)|(?:main|master)_proc|process_(?:index|id|zero|group)|"
    r"stage_i|PROCID|LOCALID|NODEID|init_dist|on_(?:main|last|master|process)|^(?:main|master|primary|chief|coordinator)_|DDP|FSDP",
    re.IGNORECASE,
)


def words_of(text: str) -> frozenset[str]:
    """Every word, and `word(` for those that are called."""
    found = Counter((_ASCII_WORD if text.isascii() else _WORD).findall(text))
    for word, times in Counter(_DEFINED.findall(text)).items():
        if found[word] <= times:  # it is defined only
            del found[word]
            found[word[:-1]] = 1
    return frozenset(found).union([word[:-1] for word in found if word[-1] == "("])


def met(needs: Needs, words: Set[str]) -> bool:
    """Has the text a word of every group?"""
    if words is not _last[0]:
        _try(words)
    return all(
        any(_has(words, one) for one in group) if isinstance(group, tuple) else _has(words, group) for group in needs
    )


#: the words that were asked about last, all words that were asked about, and what each pattern finds among them
_last: list[Set[str]] = [frozenset()]
_tried: set[str] = set()
_found: dict[re.Pattern[str], set[str]] = {}
#: which patterns find something among the words that were asked about last: several rules share one
_finds: dict[re.Pattern[str], bool] = {}


def _try(words: Set[str]) -> None:
    """Each word is tried with each pattern once in a process."""
    new = words - _tried
    if new:
        for pattern, found in _found.items():
            found.update(_matching(pattern, new))
        _tried.update(new)
    _last[0] = words
    _finds.clear()


def _has(words: Set[str], group: Words) -> bool:
    if not isinstance(group, re.Pattern):
        return not group.isdisjoint(words)
    if group not in _finds:
        _finds[group] = not _fits(group).isdisjoint(words)
    return _finds[group]


def _fits(pattern: re.Pattern[str]) -> Set[str]:
    if pattern not in _found:
        _found[pattern] = _matching(pattern, _tried)
    return _found[pattern]


def _matching(pattern: re.Pattern[str], words: Set[str]) -> set[str]:
    """The words that a pattern finds, each a line of one text: faster than one search a word."""
    lines, found, at = "\n".join(words), set[str](), 0
    by_line = re.compile(pattern.pattern, pattern.flags | re.MULTILINE)
    while (match := by_line.search(lines, at)) is not None:
        at = lines.find("\n", match.end())
        at = len(lines) if at < 0 else at
        found.add(lines[lines.rfind("\n", 0, match.start()) + 1 : at])
    return found
