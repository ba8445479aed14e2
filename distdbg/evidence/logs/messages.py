"""The error messages that distdbg knows: what they mean, why they happen, what to do.

The list is configs/messages.yaml. Read only when something has failed: 30 ms with libyaml.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any

import yaml

from distdbg.assets import asset_dir

#: Longer texts are cut: what names the kind of an error stands at its beginning.
_MOST_TEXT = 8_192
#: Entries that say that NCCL's watchdog ended the process because a collective timed out.
OF_WATCHDOG = frozenset({"nccl-timeout", "nccl-watchdog-terminated", "nccl-dump-signal"})


@dataclass(frozen=True)
class KnownMessage:
    """One entry of the list; see its head for the fields."""

    id: str
    match: re.Pattern[str]
    finding: str
    symptom: str
    cause: str
    fix: str
    source: str
    example: str
    communication: bool = False
    #: also in a line that is no exception's
    line: bool = False
    #: also in a line that its logger calls no error
    quiet: bool = False
    #: of a message that names the rank that writes it: a regular expression whose group is that rank
    reporter: str = ""
    versions: str = ""

    def reporter_in(self, text: str) -> int | None:
        """The rank that wrote this message, by its own words."""
        found = re.search(self.reporter, text[:_MOST_TEXT]) if self.reporter else None
        return int(found[1]) if found is not None else None

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Pieces of text of which each match has one; empty where the pattern shows none."""
        return literals(self.match.pattern)


@dataclass(frozen=True)
class Hit:
    """A known message within a text; `start` is the position of its first character."""

    start: int
    known: KnownMessage


@lru_cache(maxsize=1)
def known_messages() -> tuple[KnownMessage, ...]:
    """The list that ships with distdbg, in its order."""
    return parse((asset_dir("configs") / "messages.yaml").read_text(encoding="utf-8"))


def parse(text: str) -> tuple[KnownMessage, ...]:
    """Raises ValueError with the entry's id for a field that is missing or not known, or a regex that is none."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    entries = yaml.load(text, Loader=loader)["messages"]
    return tuple(_entry(fields) for fields in entries)


def _entry(fields: dict[str, Any]) -> KnownMessage:
    try:
        return KnownMessage(**{**fields, "match": re.compile(fields["match"])})
    except (TypeError, KeyError, re.error) as error:
        raise ValueError(f"message {fields.get('id')!r}: {error}") from None


def recognise(text: str, among: Iterable[KnownMessage] | None = None) -> KnownMessage | None:
    """The first entry that fits `text`, an exception as "Type: message"; None for one that is not known."""
    cut = text[:_MOST_TEXT]
    return next(
        (known for known in among or known_messages() if _may_match(known, cut) and known.match.search(cut)), None
    )


def hits_in(text: str, most: int = 2000) -> list[Hit]:
    """Entries for lines that occur in `text`, in its order; where two are in one line, the one that is listed first.

    An entry's regular expression is tried only on lines that have one of its words: a third of the time of trying it on
    the whole text. An automaton for all words would find these in less time, which is a tenth of the rest.
    """
    by_line: dict[int, Hit] = {}
    for known in known_messages():
        if not known.line:
            continue
        for begin, end in islice(_lines_with(known.words, text), most):
            if begin not in by_line and (found := known.match.search(text, begin, end)):
                by_line[begin] = Hit(found.start(), known)
    return [hit for _, hit in sorted(by_line.items())][:most]


def _lines_with(words: tuple[str, ...], text: str) -> Iterator[tuple[int, int]]:
    """The begin and end of each line with one of the words; of every line where there are none."""
    for word in words or ("",):
        at = text.find(word)
        while at >= 0:
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            yield text.rfind("\n", 0, at) + 1, end
            at = text.find(word, end + (not word)) if end < len(text) else -1


def _may_match(known: KnownMessage, text: str) -> bool:
    return not known.words or any(word in text for word in known.words)


_GROUP = re.compile(r"\((?:[^()\\]|\\.)*\)[?*+]?(?:\{[\d,]+\})?|\[(?:[^\]\\]|\\.)*\][?*+]?(?:\{[\d,]+\})?")
_RUN = re.compile(r"(?:[A-Za-z0-9 _,:/'<>!@#%&=;~\"-]|\\[.()\[\]*+?|'\"{}/-])+")


def literals(pattern: str) -> tuple[str, ...]:
    """For each alternative of a regular expression the longest piece of plain text that it must contain.

    Groups and classes are left out. Empty where an alternative has no piece of three characters, or where flags or
    look-arounds stand in it.
    """
    rest = re.sub(r"\\[A-Za-z0-9]", "\0", pattern.removeprefix("(?m)"))  # classes such as \d, and anchors
    while (shorter := _GROUP.sub("\0", rest)) != rest:
        rest = shorter
    if "(" in rest.replace("\\(", "") or pattern.startswith("(?i"):
        return ()
    found = []
    for branch in rest.split("|"):
        runs = [_plain(branch, run) for run in _RUN.finditer(branch)]
        longest = max(runs, key=len, default="")
        if len(longest) < 3:
            return ()
        found.append(longest)
    return tuple(dict.fromkeys(found))


def _plain(branch: str, run: re.Match[str]) -> str:
    """Without its last character where a quantifier makes that one optional."""
    text = re.sub(r"\\(.)", r"\1", run[0])
    return text[:-1] if branch[run.end() : run.end() + 1] in ("?", "*", "{") else text
