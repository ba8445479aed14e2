"""A terminal: its styles, its width, and lines cut to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from textwrap import wrap
from unicodedata import east_asian_width

from distdbg.plain_text import one_line

#: (a field of Style or "", text); a text may come from a script: it is cleaned here
Piece = tuple[str, str]


@dataclass(frozen=True)
class Style:
    """Escape sequences for each kind of text; all empty for a plain one."""

    error: str = ""
    warning: str = ""
    good: str = ""
    strong: str = ""
    dim: str = ""
    end: str = ""


PLAIN = Style()
COLOR = Style("\x1b[1;31m", "\x1b[1;33m", "\x1b[1;32m", "\x1b[1m", "\x1b[2m", "\x1b[0m")


@dataclass(frozen=True)
class Symbols:
    """The characters that a drawing is made of."""

    fork: str
    last: str
    bar: str
    gap: str
    more: str
    culprit: str
    absent: str


BOX = Symbols("├─ ", "└─ ", "│  ", "   ", "…", "▶ ", "·")
ASCII = Symbols("|- ", "`- ", "|  ", "   ", "...", "> ", "-")
_IN_ASCII = {"…": "...", "·": "-", "→": "->", "×": "x", "−": "-", "▶": ">"}


def cells(text: str) -> int:
    """Columns that a terminal gives it."""
    return len(text) if text.isascii() else sum(2 if east_asian_width(c) in "WF" else 1 for c in text)


@dataclass(frozen=True)
class Screen:
    """What a terminal shows: styles, box characters or ASCII alone, and how many columns."""

    style: Style = PLAIN
    symbols: Symbols = BOX
    width: int = 100

    @classmethod
    def of(cls, *, color: bool = False, ascii_only: bool = False, width: int = 100) -> Screen:
        return cls(COLOR if color else PLAIN, ASCII if ascii_only else BOX, max(50, width))

    def paint(self, kind: str, text: str) -> str:
        """`kind` is a field of Style, or empty."""
        sequence = getattr(self.style, kind) if kind else ""
        return f"{sequence}{text}{self.style.end}" if sequence and text else text

    def line(self, lead: str, pieces: Iterable[Piece]) -> str:
        """One line: `lead` as it is, then the pieces, two spaces between them; what is beyond the width is cut."""
        room = self.width - cells(lead)
        out = [lead]
        for number, (kind, raw) in enumerate(p for p in pieces if p[1]):
            text = cut(plain(one_line(raw), self.symbols), room - (2 if number else 0), self.symbols.more)
            if not text:
                break
            room -= cells(text) + (2 if number else 0)
            out.append(("  " if number else "") + self.paint(kind, text))
        return "".join(out).rstrip()

    def paragraph(self, text: str, first: str = "", others: str = "") -> list[str]:
        """Lines of a sentence; no word is cut."""
        return wrap(one_line(text), self.width, initial_indent=first, subsequent_indent=others,
                    break_long_words=False, break_on_hyphens=False)  # fmt: skip


PLAIN_SCREEN = Screen()


def cut(text: str, room: int, more: str) -> str:
    if cells(text) <= room:
        return text
    while text and cells(text) + len(more) > room:
        text = text[: len(text) - max(1, (cells(text) + len(more) - room) // 2)]
    return text + more if text else ""


def plain(text: str, symbols: Symbols) -> str:
    """A terminal that cannot show more than ASCII gets no more."""
    if symbols is not ASCII or text.isascii():
        return text
    return "".join(c if c.isascii() else _IN_ASCII.get(c, "?") for c in text)
