"""Compute the flame graph of the merged call tree, the outermost function on top.

Widths grow with the logarithm of the number of ranks: one rank among 16,384 must stay visible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2

from distdbg.evidence.rank_set import RankSet
from distdbg.evidence.stacks.call_tree import Branch, CallTree, Entry
from distdbg.report.text.tree_text import library_words, short_names

WIDTH = 1070.0
ROW = 21.0
_MOST_BRANCHES = 12
_MOST_DEPTH = 48
_MOST_BOXES = 600
#: width of a letter at the drawing's size
LETTER = 6.7


@dataclass(frozen=True, slots=True)
class FlameBox:
    """`kind` is a class of the style sheet: frame, line, library, words, more, ranks; `text` is cut to the box."""

    x: float
    y: float
    width: float
    kind: str
    text: str
    title: str
    culprit: bool


@dataclass(frozen=True, slots=True)
class Flame:
    boxes: tuple[FlameBox, ...]
    height: float


def flame(tree: CallTree, culprits: RankSet) -> Flame:
    drawing = _FlameBuilder(culprits, short_names({e.file for b in tree.branches for e in _entries(b)}))
    drawing.place(tree.branches, 0.0, WIDTH, 0)
    return Flame(tuple(drawing.boxes), max((box.y + ROW for box in drawing.boxes), default=0.0))


def _entries(branch: Branch) -> list[Entry]:
    return [*branch.entries, *(e for inner in branch.branches for e in _entries(inner))]


class _FlameBuilder:
    def __init__(self, culprits: RankSet, names: dict[str, str]) -> None:
        self.culprits = culprits
        self.names = names
        self.boxes: list[FlameBox] = []

    def place(self, branches: Sequence[Branch], x: float, width: float, depth: int) -> None:
        """Side by side, culprits first; those that are too many are one box."""
        ordered = sorted(branches, key=lambda b: not (b.ranks & self.culprits))
        shown = ordered if len(ordered) <= _MOST_BRANCHES else ordered[: _MOST_BRANCHES - 1]
        if depth >= _MOST_DEPTH or len(self.boxes) >= _MOST_BOXES:
            shown = []
        hidden = ordered[len(shown) :]
        weights = [_weight(branch) for branch in shown] + ([1.0] if hidden else [])
        unit = width / max(sum(weights), 1.0)
        for branch, weight in zip(shown, weights, strict=False):
            self._branch(branch, x, weight * unit, depth)
            x += weight * unit
        if hidden:
            ranks = RankSet()
            for branch in hidden:
                ranks |= branch.ranks
            words = f"{len(hidden)} more branches: {ranks.words(300)}"
            self._box(x, depth, unit * weights[-1], "more", (words, words), culprit=False)

    def _branch(self, branch: Branch, x: float, width: float, depth: int) -> None:
        culprit = bool(branch.ranks) and not branch.ranks - self.culprits
        ranks = branch.ranks.words(300)
        for entry in branch.entries:
            if depth < _MOST_DEPTH:
                text = self._words(entry)
                title = "\n".join((ranks, text, *_inside(entry)))
                self._box(x, depth, width, entry.kind, (text, title), culprit=culprit)
                depth += 1
        if branch.here and not branch.branches:
            words = branch.here.words(48)
            title = f"{branch.here.words(300)} are here" + (f"\nin C++: {branch.native}" if branch.native else "")
            self._box(x, depth, width, "ranks", (words, title), culprit=culprit)
        self.place(branch.branches, x, width, depth)

    def _words(self, entry: Entry) -> str:
        place = self.names.get(entry.file, "") + (f":{entry.line}" if entry.line else "")
        if entry.kind == "library":
            return library_words(entry)
        if entry.kind == "line":
            return f"line {entry.line}  {entry.source}"
        return (
            "  ".join(filter(None, (entry.function, place, entry.source))) if entry.kind == "frame" else entry.function
        )

    def _box(self, x: float, depth: int, width: float, kind: str, words: tuple[str, str], *, culprit: bool) -> None:
        text, title = words
        room = int((width - 10) / LETTER)
        shown = text if len(text) <= room else text[: max(0, room - 1)] + "…" if room > 3 else ""
        self.boxes.append(FlameBox(x, depth * ROW, max(width - 1.5, 1.0), kind, shown, title[:1500], culprit))


def _inside(entry: Entry) -> list[str]:
    return [f"  {frame}" for frame in entry.frames[:20]] if entry.kind == "library" else []


def _weight(branch: Branch) -> float:
    own = 1.0 + log2(max(len(branch.here), 1)) if branch.here else 0.0
    return max(own, sum(_weight(inner) for inner in branch.branches[:_MOST_BRANCHES]), 1.0)
