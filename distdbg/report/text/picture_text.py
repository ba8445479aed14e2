"""Render the picture of a dump for a terminal: the call tree, which ranks wait for which, the last collectives."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.diagnosis.waits.picture import Picture
from distdbg.evidence.rank_set import RankSet
from distdbg.report.text.collectives_text import groups_lines
from distdbg.report.text.screen import Screen
from distdbg.report.text.tree_text import tree_text

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
