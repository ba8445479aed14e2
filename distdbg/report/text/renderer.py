"""The renderer for a terminal: the verdict, its evidence, what is not known, and whose exit code it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from textwrap import shorten, wrap

from distdbg.model import Citation, Finding, Report, Unknown
from distdbg.plain_text import clean, one_line
from distdbg.report.document import Block, Cell, Document, Paragraph, Section, StackPicture, Table
from distdbg.report.memory_report import MemoryUse
from distdbg.report.text.memory_text import memory_lines
from distdbg.report.text.screen import Screen, Style, cells, cut
from distdbg.report.text.tree_text import picture_lines

_MOST_EXPLAINED = 8
_MOST_UNKNOWN = 8
#: columns of a terminal, for a line of a log or a traceback: three rows of the usual 80
_QUOTE_CELLS = 240


@dataclass(frozen=True)
class TextRenderer:
    """Renders without a final newline. `tree_lines` limits a call tree.

    `shown` is a report that the reader has just seen: only the first sentences of its findings are repeated.
    """

    screen: Screen = field(default_factory=Screen)
    tree_lines: int = 24
    shown: Report | None = None

    def render(self, document: Document) -> str:
        lines = [_title(document, self.screen), *self.verdict(document)]
        return "\n".join([*lines, *self.sections(document.sections)])

    def verdict(self, document: Document) -> list[str]:
        """Findings, unknowns and the last sentence, each with an empty line before it."""
        return list(_Verdict(document, self.screen, self.shown).lines())

    def sections(self, sections: Iterable[Section]) -> list[str]:
        """Those that a terminal has room for, each with an empty line before it."""
        lines: list[str] = []
        for section in sections:
            if section.page_only:
                continue
            if shown := [line for block in section.blocks for line in self._block(block)]:
                title = [self.screen.paint("strong", one_line(section.title))] if section.title else []
                lines += ["", *title, *shown]
        return lines

    def _block(self, block: Block) -> Iterable[str]:
        match block:
            case StackPicture():
                return picture_lines(block.picture, self.screen, self.tree_lines)
            case MemoryUse():
                return memory_lines(block, self.screen)
            case Table():
                return _table(block, self.screen)
            case Paragraph():
                indent = " " * block.indent
                lines = self.screen.paragraph(block.text, indent, f"{indent}  ")
                return [self.screen.paint(block.kind, line) for line in lines]
        return ()


def _title(document: Document, screen: Screen) -> str:
    outcome = document.report.outcome
    kind = {"succeeded": "good", "failed": "error", "hung": "error"}.get(outcome or "", "warning")
    words = (clean(document.title), screen.paint(kind, outcome or "analysis"), *document.facts)
    return " · ".join(filter(None, words))


def _table(table: Table, screen: Screen) -> Iterator[str]:
    """Notes go first where the terminal is narrow; then the last column is cut, or goes on in the next line."""
    rows = [[Cell(cell) if isinstance(cell, str) else cell for cell in row] for row in table.rows]
    for notes in (True, False):
        texts = [[_indented(cell.text) + (f" {cell.note}" if cell.note and notes else "") for cell in row]
                 for row in rows]  # fmt: skip
        widths = [
            max([cells(column.title), *(cells(row[n]) for row in texts)]) for n, column in enumerate(table.columns)
        ]
        if sum(widths) + 2 * (len(widths) - 1) <= screen.width:
            break
    last = table.columns[-1]
    if not last.number:
        widths[-1] = min(widths[-1], max(20, screen.width - sum(widths[:-1]) - 2 * (len(widths) - 1)))
    if any(column.title for column in table.columns):
        yield _row(table, [Cell(column.title, kind="strong") for column in table.columns], widths, screen)
    for row, words in zip(rows, texts, strict=True):
        lines = wrap(words[-1], max(widths[-1], 1)) if last.wrap else words[-1:]
        shown = [replace(cell, text=text) for cell, text in zip(row, [*words[:-1], *(lines[:1] or [""])], strict=True)]
        yield _row(table, shown, widths, screen)
        for line in lines[1:]:
            yield _row(table, [*[Cell("")] * (len(row) - 1), Cell(line)], widths, screen)


def _indented(text: str) -> str:
    return text[: len(text) - len(text.lstrip(" "))] + one_line(text)


def _row(table: Table, row: Sequence[Cell], widths: Sequence[int], screen: Screen) -> str:
    parts = []
    for cell, column, width in zip(row, table.columns, widths, strict=True):
        text = cut(cell.text, width, screen.symbols.more)
        space = " " * (width - cells(text))
        painted = screen.paint(cell.kind if cell.kind in Style.__annotations__ else "", text)
        parts.append(space + painted if column.number else painted + space)
    return "  ".join(parts).rstrip()


class _Verdict:
    """Findings, unknowns and the last sentence."""

    def __init__(self, document: Document, screen: Screen, shown: Report | None) -> None:
        self.document = document
        self.screen = screen
        self.paint = screen.paint
        self.shown = {_key(f) for f in shown.findings} if shown is not None else set()
        self.known = set(shown.unknown) if shown is not None else set()

    def lines(self) -> Iterator[str]:
        for finding in self.document.causes:
            yield ""
            yield from self._finding(finding)
        yield from self._explained([f for f in self.document.explained if not self._seen(f)])
        yield from self._unknown([u for u in self.document.report.unknown if u not in self.known])
        if self.document.ending:
            yield ""
            yield self.document.ending

    def _finding(self, finding: Finding) -> Iterator[str]:
        sure = "" if finding.confidence == "certain" else f" ({finding.confidence})"
        first, *rest = self.screen.paragraph(finding.summary, " " * len(f"{finding.id}{sure}  "), "  ") or [""]
        kind = "error" if finding.severity == "error" else "warning"
        yield f"{self.paint(kind, finding.id)}{sure}  {self.paint('strong', first.strip())}"
        yield from (self.paint("strong", line) for line in rest)
        if self._seen(finding):
            yield "  as shown above"
            return
        for name, text in (("why", finding.cause), ("do", finding.remedy)):
            lines = wrap(clean(text), self.screen.width - 7, break_long_words=False, break_on_hyphens=False)
            yield from (f"  {name if number == 0 else '':<4} {line}" for number, line in enumerate(lines))
        for number, citation in enumerate(finding.evidence):
            yield from self._citation(citation, quoted=number == 0)

    def _seen(self, finding: Finding) -> bool:
        return _key(finding) in self.shown

    def _citation(self, citation: Citation, *, quoted: bool) -> Iterator[str]:
        place = citation.path + (f":{citation.line}" if citation.line else "")
        where = f" ({one_line(citation.where)})" if citation.where else ""
        yield self.paint("dim", f"  seen {clean(place)}{where}")
        if quoted and citation.quote:
            for line in clean(citation.quote).rstrip().split("\n")[-self.document.quote_lines :]:
                yield f"       {cut(line, _QUOTE_CELLS, self.screen.symbols.more)}".rstrip()

    def _explained(self, findings: Sequence[Finding]) -> Iterator[str]:
        if not findings:
            return
        yield from ("", "Explained by it:")
        for finding in findings[:_MOST_EXPLAINED]:
            yield f"  {finding.id}  {shorten(one_line(finding.summary), 2 * self.screen.width, placeholder=' …')}"
        if len(findings) > _MOST_EXPLAINED:
            yield f"  … and {len(findings) - _MOST_EXPLAINED} more"

    def _unknown(self, unknowns: Sequence[Unknown]) -> Iterator[str]:
        if not unknowns:
            return
        yield from ("", "Unknown:")
        for unknown in unknowns[:_MOST_UNKNOWN]:
            yield f"  {one_line(unknown.what)}, because {one_line(unknown.because)}"
        if len(unknowns) > _MOST_UNKNOWN:
            yield f"  … and {len(unknowns) - _MOST_UNKNOWN} more: see report.json"


def _key(finding: Finding) -> tuple[str, tuple[int, ...], str]:
    return finding.id, finding.ranks, finding.summary


def ticket(document: Document) -> str:
    """Render as Markdown for a ticket: the text report in a block of code, after the command."""
    head = [f"$ {one_line(document.command)}"] if document.command else []
    head += [f"# {one_line(words)}" for words in (document.started, document.folder) if words]
    text = "\n".join([*head, *([""] if head else []), TextRenderer().render(document)])
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}\n"
