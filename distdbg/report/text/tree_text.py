"""Render the merged call tree for a terminal: shared calls are flat, branches are indented."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from distdbg.diagnosis.waits.picture import Picture
from distdbg.evidence.rank_set import RankSet
from distdbg.evidence.stacks.call_tree import Branch, CallTree, Entry
from distdbg.report.text.collectives_text import groups_lines
from distdbg.report.text.screen import PLAIN_SCREEN, Piece, Screen

#: (branches at one place, entries of one stretch), tried in turn until the tree fits
_SIZES = ((12, 12), (8, 8), (5, 6), (3, 4), (2, 3))


def tree_text(tree: CallTree, culprits: RankSet, screen: Screen = PLAIN_SCREEN, most: int = 48) -> list[str]:
    """The tree's lines, at most `most`; the places of `culprits` are marked, and come first."""
    lines: list[str] = []
    for branches, entries in _SIZES:
        lines = list(_Drawing(tree, culprits, screen, branches, entries).lines())
        if len(lines) <= most:
            return lines
    return [*lines[: most - 1], f"{screen.symbols.more} and {len(lines) - most + 1} more lines"]


class _Drawing:
    def __init__(self, tree: CallTree, culprits: RankSet, screen: Screen, branches: int, entries: int) -> None:
        self.tree = tree
        self.culprits = culprits
        self.screen = screen
        self.symbols = screen.symbols
        self.most_branches, self.most_entries = branches, entries
        self.names = short_names({e.file for b in _every(tree) for e in b.entries if e.kind in ("frame", "line")})

    def lines(self) -> Iterator[str]:
        yield from self._branches(self.tree.branches, "", top=True)

    def _branches(self, branches: tuple[Branch, ...], lead: str, *, top: bool = False) -> Iterator[str]:
        ordered = sorted(branches, key=lambda b: not (b.ranks & self.culprits))  # stable: the largest stay first
        many = len(ordered) > self.most_branches
        shown = ordered[: self.most_branches - 1] if many else ordered
        for number, branch in enumerate(shown):
            last = number == len(shown) - 1 and not many
            own = lead if top else lead + (self.symbols.last if last else self.symbols.fork)
            below = lead if top else lead + (self.symbols.gap if last else self.symbols.bar)
            yield from self._branch(branch, own, below)
        if many:
            hidden = ordered[len(shown) :]
            ranks = RankSet()
            for branch in hidden:
                ranks |= branch.ranks
            words = f"{self.symbols.more} and {len(hidden)} more branches: {ranks.words()}"
            yield self.screen.line(lead if top else lead + self.symbols.last, [("dim", words)])

    def _branch(self, branch: Branch, own: str, below: str) -> Iterator[str]:
        culprit = bool(branch.ranks & self.culprits) and not branch.ranks - self.culprits
        mark = self.symbols.culprit if culprit else ""
        ranks = ("error" if culprit else "strong", mark + branch.ranks.words())
        entries = [
            self._entry(e, culprit=culprit, last=n == len(branch.entries) - 1) for n, e in enumerate(branch.entries)
        ]
        rest = self._shortened(entries[1:])
        if rest and branch.native:
            rest[-1] = [*rest[-1], ("dim", f"in C++: {branch.native}")]
        yield self.screen.line(own, [ranks, *(entries[0] if entries else ())])
        inner = below + (self.symbols.bar if branch.branches else self.symbols.gap)
        yield from (self.screen.line(inner, pieces) for pieces in rest)
        if branch.branches and branch.here and branch.here != branch.ranks:
            yield self.screen.line(inner, [("dim", f"{branch.here.words()} here, the others go on:")])
        yield from self._branches(branch.branches, below)

    def _shortened(self, entries: list[list[Piece]]) -> list[list[Piece]]:
        """Entries without the middle of a long sequence: its begin and its end say more."""
        if len(entries) <= self.most_entries:
            return entries
        head, tail = 1, self.most_entries - 2
        hidden = len(entries) - head - tail
        return [*entries[:head], [("dim", f"{self.symbols.more} {hidden} more functions")], *entries[-tail:]]

    def _entry(self, entry: Entry, *, culprit: bool, last: bool) -> list[Piece]:
        place = self.names.get(entry.file, "") + (f":{entry.line}" if entry.line else "")
        strong = "error" if culprit and last else "strong"
        if entry.kind == "frame":
            return [("", entry.function), ("dim", place), (strong if last else "", entry.source)]
        if entry.kind == "line":
            return [("dim", f"line {entry.line}"), (strong if last else "", entry.source)]
        if entry.kind == "words":
            return [("dim", f"[{entry.function}]")]
        return [("dim", library_words(entry, self.symbols.more))]


def library_words(entry: Entry, more: str = "…") -> str:
    if len(entry.frames) == 1:
        return f"{entry.packages}: {entry.function}"
    return f"{entry.packages} {more} {entry.function} ({len(entry.frames)} frames)"


def _every(tree: CallTree) -> Iterator[Branch]:
    todo = list(tree.branches)
    while todo:
        branch = todo.pop()
        yield branch
        todo += branch.branches


def short_names(files: Iterable[str]) -> dict[str, str]:
    """Each file's last parts, as many as tell it from the others."""
    names: dict[str, str] = {}
    todo = dict.fromkeys(files, 1)
    while todo:
        tails = {file: "/".join(file.split("/")[-count:]) for file, count in todo.items()}
        seen = Counter(tails.values())
        for file, tail in tails.items():
            if seen[tail] == 1 or todo[file] > file.count("/"):
                names[file] = tail
                del todo[file]
            else:
                todo[file] += 1
    return names


_MOST_WAITS = 6


def picture_lines(picture: Picture, screen: Screen, tree_lines: int) -> list[str]:
    """`tree_lines` limits the call tree."""
    lines = tree_text(picture.tree, picture.culprits, screen, tree_lines)
    if note := one_stack(picture):
        lines += screen.paragraph(note)
    if picture.waits:
        lines += ["", screen.line("", [("strong", "Which ranks wait for which")]), *_waits(picture, screen)]
    collectives = groups_lines(picture.timelines, picture.culprits, screen)
    return [*lines, "", *collectives] if collectives else lines


def one_stack(picture: Picture) -> str:
    """Return what a tree without branches means; empty if the stacks of the ranks differ, or no rank has one."""
    ranks = picture.tree.ranks
    has_stacks = any(entry.kind != "words" for _, branch in picture.tree.leaves() for entry in branch.entries)
    if picture.tree.classes != 1 or len(ranks) < 2 or not has_stacks:
        return ""
    known = any(timeline.stuck for timeline in picture.timelines)
    below = " Their collectives, below, show how far each one is." if known else ""
    return f"Ranks {ranks.text()} have the same stack: it does not distinguish them.{below}"


def _waits(picture: Picture, screen: Screen) -> Iterator[str]:
    """Those for the culprits first."""
    waits = sorted(picture.waits, key=lambda w: not RankSet.of(w.awaited) & picture.culprits)
    for wait in waits[:_MOST_WAITS]:
        awaited = RankSet.of(wait.awaited)
        words = f"{RankSet.of(wait.waiting).words()} → {awaited.words()}"
        yield screen.line("  ", [("error" if awaited & picture.culprits else "", words), ("dim", wait.what)])
    if len(waits) > _MOST_WAITS:
        yield screen.line("  ", [("dim", f"… and {len(waits) - _MOST_WAITS} more")])
