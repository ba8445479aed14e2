"""The report for a terminal: the verdict first, then what it rests on, what is not known, and whose exit code it is."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

from distdbg.model import Citation, Finding, Report, Unknown
from distdbg.plain_text import clean, one_line

_WORST = ("error", "warning", "info")
_MOST_EXPLAINED = 8
_MOST_UNKNOWN = 8
_MOST_QUOTE_LINES = 40


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


def render_text(report: Report, *, color: bool = False, width: int = 100, shown: Report | None = None) -> str:
    """The whole report as text, without a newline at its end. With `color`, ANSI styles; width is columns.

    Of what `shown`, a report that the reader has just seen, already had, only the first sentences are repeated.
    """
    return "\n".join(_Text(COLOR if color else PLAIN, max(50, width), shown).lines(report))


def _key(finding: Finding) -> tuple[str, tuple[int, ...], str]:
    return finding.id, finding.ranks, finding.summary


class _Text:
    def __init__(self, style: Style, width: int, shown: Report | None) -> None:
        self.style = style
        self.width = width
        self.shown = {_key(f) for f in shown.findings} if shown is not None else set()
        self.known = set(shown.unknown) if shown is not None else set()

    def lines(self, report: Report) -> Iterable[str]:
        yield self._title(report)
        roots = [f for f in report.findings if f.explained_by is None]
        for finding in sorted(roots, key=lambda f: _WORST.index(f.severity)):
            yield ""
            yield from self._finding(finding)
        yield from self._explained([f for f in report.findings if f.explained_by is not None and not self._seen(f)])
        yield from self._unknown([u for u in report.unknown if u not in self.known])
        if report.exit_code is not None or report.run is None or report.run.get("id"):
            yield ""
            yield self._last_line(report)

    def _title(self, report: Report) -> str:
        run = report.run or {}
        mark = {"succeeded": self.style.good, "failed": self.style.error, "hung": self.style.error}
        word = self._paint(mark.get(report.outcome or "", self.style.warning), report.outcome or "analysis")
        words = [clean(str(run.get("id") or "")), word]
        if run.get("world_size"):
            nodes = len(run.get("nodes") or ())
            words.append(f"{run['world_size']} rank{_s(run['world_size'])} on {nodes} node{_s(nodes)}")
        if (run.get("attempt") or 1) > 1:
            words.append(f"attempt {run['attempt']}")
        started, ended = run.get("started"), run.get("ended")
        if isinstance(started, (int, float)) and isinstance(ended, (int, float)) and ended >= started:
            words.append(duration(ended - started))
        return " · ".join(filter(None, words))

    def _finding(self, finding: Finding) -> Iterable[str]:
        mark = self.style.error if finding.severity == "error" else self.style.warning
        sure = "" if finding.confidence == "certain" else f" ({finding.confidence})"
        first, *rest = textwrap.wrap(
            one_line(finding.summary), self.width, initial_indent=" " * len(f"{finding.id}{sure}  "),
            subsequent_indent="  ", break_long_words=False, break_on_hyphens=False,
        ) or [""]  # fmt: skip
        yield f"{self._paint(mark, finding.id)}{sure}  {self._paint(self.style.strong, first.strip())}"
        yield from (self._paint(self.style.strong, line) for line in rest)
        if self._seen(finding):
            yield "  as shown above"
            return
        yield from self._field("why", finding.cause)
        yield from self._field("do", finding.remedy)
        for place, citation in enumerate(finding.evidence):
            yield from self._citation(citation, whole=place == 0)

    def _seen(self, finding: Finding) -> bool:
        return _key(finding) in self.shown

    def _field(self, name: str, text: str) -> Iterable[str]:
        if text:
            wrapped = textwrap.wrap(clean(text), self.width - 7, break_long_words=False, break_on_hyphens=False)
            yield from (f"  {name if i == 0 else '':<4} {line}" for i, line in enumerate(wrapped))

    def _citation(self, citation: Citation, *, whole: bool) -> Iterable[str]:
        place = citation.path + (f":{citation.line}" if citation.line else "")
        where = f" ({one_line(citation.where)})" if citation.where else ""
        yield self._paint(self.style.dim, f"  seen {clean(place)}{where}")
        if whole and citation.quote:
            for line in clean(citation.quote).rstrip().split("\n")[-_MOST_QUOTE_LINES:]:
                yield f"       {line[:240]}".rstrip()

    def _explained(self, findings: list[Finding]) -> Iterable[str]:
        if not findings:
            return
        yield ""
        yield "Explained by it:"
        for finding in findings[:_MOST_EXPLAINED]:
            yield f"  {finding.id}  {textwrap.shorten(one_line(finding.summary), 2 * self.width, placeholder=' …')}"
        if len(findings) > _MOST_EXPLAINED:
            yield f"  … and {len(findings) - _MOST_EXPLAINED} more"

    def _unknown(self, unknowns: list[Unknown]) -> Iterable[str]:
        if not unknowns:
            return
        yield ""
        yield "Unknown:"
        for unknown in unknowns[:_MOST_UNKNOWN]:
            yield f"  {one_line(unknown.what)}, because {one_line(unknown.because)}"
        if len(unknowns) > _MOST_UNKNOWN:
            yield f"  … and {len(unknowns) - _MOST_UNKNOWN} more: see report.json"

    def _last_line(self, report: Report) -> str:
        if report.exit_code is None and report.exit_code_of:
            return f"exit code: {report.exit_code_of}"
        if report.exit_code is None and any(rank.state == "running" for rank in report.ranks):
            return "exit code: none yet: the job was still running"
        if report.exit_code is None:
            return "exit code unknown: no rank's and no torchrun's is recorded"
        return f"exit code {report.exit_code}: {clean(report.exit_code_of or 'no rank')}"

    def _paint(self, style: str, text: str) -> str:
        return f"{style}{text}{self.style.end}" if style else text


def duration(seconds: float) -> str:
    """`0.8 s`, `42 s`, `3 min 20 s`, `5 h 2 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _s(count: int) -> str:
    return "" if count == 1 else "s"
