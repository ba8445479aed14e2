"""The document model: what a command answers, built once and rendered as text, JSON or HTML.

A document has the report (findings, unknown, ranks) and sections of blocks that show what the report rests on. A
renderer skips a block that its form has no place for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Protocol

from distdbg.hidden_values import HiddenValues
from distdbg.model import Finding, Report

if TYPE_CHECKING:
    from distdbg.diagnosis.waits.picture import Picture

MOST_QUOTE_LINES = 40
_WORST_FIRST = ("error", "warning", "info")


class Block:
    """A part of a section. Each renderer dispatches by its class."""


@dataclass(frozen=True)
class Paragraph(Block):
    """`kind` is "", "strong" or "dim"; `indent` counts columns of a terminal."""

    text: str
    kind: str = ""
    indent: int = 0


@dataclass(frozen=True)
class Quote(Block):
    """Text of others, line by line as it was printed."""

    text: str


@dataclass(frozen=True)
class Cell:
    """`note` goes where a terminal is too narrow. On a page `full` is the tooltip, and `kind` the class of a dot."""

    text: str
    note: str = ""
    full: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Column:
    """`code`: paths and values. `wrap`: on a terminal its text goes on in the next line; else it is cut."""

    title: str = ""
    number: bool = False
    code: bool = False
    wrap: bool = False


@dataclass(frozen=True)
class Table(Block):
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell | str, ...], ...]
    #: names and values: the first column is narrow
    pairs: bool = False


@dataclass(frozen=True)
class Details(Block):
    """Blocks that a page folds below a summary."""

    summary: str
    blocks: tuple[Block, ...]
    note: str = ""
    open: bool = False


@dataclass(frozen=True)
class StackPicture(Block):
    """The places where the ranks of a dump are blocked: call tree, wait graph, collectives."""

    picture: Picture


@dataclass(frozen=True)
class Section:
    """`page_only`: too long for a terminal."""

    title: str
    blocks: tuple[Block, ...]
    page_only: bool = False


@dataclass(frozen=True)
class Document:
    """`facts` are shown beside the title. `ending` is the last sentence: whose exit code it is.

    `json_keys` makes what the JSON form has beside the keys of distdbg.report/1.

    `hidden` masks every text while a document is made: no renderer gets a secret.
    """

    report: Report
    title: str = ""
    command: str = ""
    facts: tuple[str, ...] = ()
    started: str = ""
    folder: str = ""
    ending: str = ""
    sections: tuple[Section, ...] = ()
    json_keys: Callable[[], Mapping[str, object]] = dict
    #: lines of a finding's evidence that a terminal shows
    quote_lines: int = MOST_QUOTE_LINES
    hidden: HiddenValues = field(default_factory=HiddenValues)

    def __post_init__(self) -> None:
        for name in (part.name for part in fields(self)):
            object.__setattr__(self, name, self.hidden.mask_all(getattr(self, name)))

    def json_values(self) -> Mapping[str, object]:
        """What `json_keys` makes, without secrets."""
        return self.hidden.mask_all(self.json_keys())

    @property
    def causes(self) -> list[Finding]:
        """The findings that no other one explains, the worst first."""
        return sorted(self.report.verdict, key=lambda f: _WORST_FIRST.index(f.severity))

    @property
    def explained(self) -> list[Finding]:
        return [f for f in self.report.findings if f.explained_by is not None]


class Renderer(Protocol):
    """One output: the terminal, JSON or the page."""

    def render(self, document: Document) -> str: ...


def pairs(rows: Sequence[tuple[str, str]]) -> Table:
    """Names and values."""
    return Table((Column(code=True), Column(code=True)), tuple(rows), pairs=True)
