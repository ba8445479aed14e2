"""Lines of several styles for a terminal, cut at its width."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from unicodedata import east_asian_width

from distdbg.plain_text import one_line

#: (style's escape sequence or "", text); a text may come from a script: it is cleaned here
Piece = tuple[str, str]


@dataclass(frozen=True)
class Signs:
    """The characters that a drawing is made of."""

    fork: str
    last: str
    bar: str
    gap: str
    more: str
    culprit: str
    absent: str


BOX = Signs("├─ ", "└─ ", "│  ", "   ", "…", "▶ ", "·")
ASCII = Signs("|- ", "`- ", "|  ", "   ", "...", "> ", "-")
_IN_ASCII = {"…": "...", "·": "-", "→": "->", "×": "x", "−": "-", "▶": ">"}


def cells(text: str) -> int:
    """Columns that a terminal gives it."""
    return len(text) if text.isascii() else sum(2 if east_asian_width(c) in "WF" else 1 for c in text)


def join(lead: str, pieces: Iterable[Piece], signs: Signs, width: int, end: str) -> str:
    """One line: `lead` as it is, then the pieces, two spaces between them; what is beyond `width` is cut.

    `end` ends a style.
    """
    room = width - cells(lead)
    out = [lead]
    for number, (style, raw) in enumerate(p for p in pieces if p[1]):
        text = cut(plain(one_line(raw), signs), room - (2 if number else 0), signs.more)
        if not text:
            break
        room -= cells(text) + (2 if number else 0)
        out.append(("  " if number else "") + (f"{style}{text}{end}" if style else text))
    return "".join(out).rstrip()


def cut(text: str, room: int, more: str) -> str:
    if cells(text) <= room:
        return text
    while text and cells(text) + len(more) > room:
        text = text[: len(text) - max(1, (cells(text) + len(more) - room) // 2)]
    return text + more if text else ""


def plain(text: str, signs: Signs) -> str:
    """A terminal that cannot show more than ASCII gets no more."""
    if signs is not ASCII or text.isascii():
        return text
    return "".join(c if c.isascii() else _IN_ASCII.get(c, "?") for c in text)


def kept(items: Sequence[str], most: int) -> tuple[Sequence[str], int]:
    """The first of them, and how many are left out."""
    return (items, 0) if len(items) <= most else (items[: most - 1], len(items) - most + 1)
