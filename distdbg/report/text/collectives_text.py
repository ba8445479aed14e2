"""Render the last collectives for a terminal: a column for each sequence number, a letter for each operation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from distdbg.diagnosis.waits.collectives import GroupTimeline, Lane, Op
from distdbg.evidence.rank_set import RankSet
from distdbg.report.text.screen import PLAIN_SCREEN, Screen, cells
from distdbg.wording import counted, duration

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_MOST_LANES = 10
_MOST_RANKS = 24
_NOT_RECORDED = "?"


def groups_lines(
    timelines: Sequence[GroupTimeline], culprits: RankSet, screen: Screen = PLAIN_SCREEN, most_groups: int = 3
) -> list[str]:
    """The groups with an operation that is not completed or a rank that is behind; the others are counted."""
    stuck = [timeline for timeline in timelines if timeline.stuck] or list(timelines[:1])
    lines: list[str] = []
    for timeline in stuck[:most_groups]:
        lines += [*([""] if lines else []), *_GroupText(timeline, culprits, screen).lines()]
    left = sum(1 + timeline.alike for timeline in timelines) - sum(
        1 + timeline.alike for timeline in stuck[:most_groups]
    )
    if left:
        waiting = sum(1 + timeline.alike for timeline in stuck[most_groups:])
        words = counted(left, "more group") + (f", {waiting} of them waiting" if waiting else "")
        lines.append(screen.line("", [("dim", words)]))
    return [*lines, *(screen.line("  ", [("dim", note)]) for note in notes(stuck[:most_groups]))]


def notes(timelines: Sequence[GroupTimeline]) -> Iterator[str]:
    """How to read it: only what occurs is explained."""
    ops = [op for timeline in timelines for lane in timeline.lanes for op in lane.ops]
    empty_cells = {
        was_begun(lane, sequence)
        for timeline in timelines
        for lane in timeline.lanes
        for op, sequence in zip(lane.ops, timeline.columns, strict=True)
        if op is None
    }
    words = []
    if any(op is not None and not op.done for op in ops):
        words.append("[a] begun and not finished")
    if False in empty_cells:
        words.append("· not begun")
    if True in empty_cells:
        words.append(f"{_NOT_RECORDED} begun, and not recorded which operation it was")
    if any(op is not None and op.odd for op in ops):
        words.append("! differs from what other ranks called")
    if any(op is not None and op.late_s for op in ops):
        words.append("+0.3 s later than the first of its node")
    if words:
        yield ", ".join(words)


class _GroupText:
    def __init__(self, timeline: GroupTimeline, culprits: RankSet, screen: Screen) -> None:
        self.timeline = timeline
        self.culprits = culprits
        self.screen = screen
        self.symbols = screen.symbols

    def lines(self) -> Iterator[str]:
        timeline = self.timeline
        yield self.screen.line("", [("strong", group_words(timeline))])
        for line in wrap(
            ", ".join(f"{letter(n)} {what}" for n, what in enumerate(timeline.legend)),
            max(20, self.screen.width - 4),
            break_on_hyphens=False,
        )[:3]:
            yield self.screen.line("  ", [("dim", line)])
        lanes = sorted(timeline.lanes, key=lambda lane: not (lane.ranks & self.culprits))
        shown = lanes[:_MOST_LANES]
        names = [
            (self.symbols.culprit if lane.ranks & self.culprits else "") + lane.ranks.words(_MOST_RANKS)
            for lane in shown
        ]
        wide = max([cells(name) for name in names] + [3])
        grid = [
            [self._cell(op, lane, sequence) for op, sequence in zip(lane.ops, timeline.columns, strict=True)]
            for lane in shown
        ]
        states = [lane_words(lane, timeline) for lane in shown]
        room = self.screen.width - wide - 6 - max(map(len, states), default=0)
        first = _fitting(timeline.columns, grid, room)
        head = self._row([str(n) for n in timeline.columns][first:], grid, first)
        yield self._grid_line("dim", f"  {'#':<{wide}}  {head}")
        for lane, name, row, state in zip(shown, names, grid, states, strict=True):
            mark = "error" if lane.ranks & self.culprits else ""
            text = f"{name}{' ' * (wide - cells(name))}  {self._row(row[first:], grid, first)}  {state}"
            yield self._grid_line(mark, f"  {text}")
        if len(lanes) > len(shown):
            yield self.screen.line(
                "  ", [("dim", f"{self.symbols.more} and {counted(len(lanes) - len(shown), 'more row')}")]
            )

    def _cell(self, op: Op | None, lane: Lane, sequence: int) -> str:
        if op is None:
            return _NOT_RECORDED if was_begun(lane, sequence) else self.symbols.absent
        word = ("!" if op.odd else "") + letter(op.what) + (f"+{op.late_s:.1f}" if op.late_s else "")
        return word if op.done else f"[{word}]"

    def _row(self, row: Sequence[str], grid: Sequence[Sequence[str]], first: int) -> str:
        widths = _widths(self.timeline.columns, grid)[first:]
        return "".join(f"{cell:^{wide}}" for cell, wide in zip(row, widths, strict=True))

    def _grid_line(self, kind: str, text: str) -> str:
        """The columns' spaces carry meaning: nothing here is a script's text, so nothing is cleaned."""
        return self.screen.paint(kind, text.rstrip()[: self.screen.width])


def group_words(timeline: GroupTimeline) -> str:
    alike = f", and {timeline.alike} groups like it" if timeline.alike else ""
    return f"{timeline.title}{alike}: {timeline.members.words()}"


def lane_words(lane: Lane, timeline: GroupTimeline) -> str:
    newest = max((other.last for other in timeline.lanes), default=0)
    words = []
    if lane.open_s is not None:
        words.append(f"open for {duration(lane.open_s)}" if lane.open_s else "open")
    if lane.last < newest:
        words.append(f"has begun {newest - lane.last} fewer" if lane.last else "has begun none")
    return ", ".join(words)


def was_begun(lane: Lane, sequence: int) -> bool:
    """Return whether the ranks of a lane have begun an operation of which the lane has no record."""
    return sequence <= lane.last


def letter(number: int) -> str:
    return _LETTERS[number] if number < len(_LETTERS) else f"{_LETTERS[number % 26]}{number // 26}"


def _widths(columns: Sequence[int], grid: Sequence[Sequence[str]]) -> list[int]:
    return [max([len(str(n)), *(len(row[at]) for row in grid)]) + 2 for at, n in enumerate(columns)]


def _fitting(columns: Sequence[int], grid: Sequence[Sequence[str]], room: int) -> int:
    """The first column to show: the oldest go where the terminal is narrow."""
    widths = _widths(columns, grid)
    first = 0
    while first < len(widths) - 1 and sum(widths[first:]) > room:
        first += 1
    return first
