"""The picture of a dump for a terminal: the call tree, who waits for whom, the strip of collectives."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.diagnosis.timeline.groups import groups
from distdbg.diagnosis.waits.hang import hang_of
from distdbg.diagnosis.waits.picture import Picture, picture_of
from distdbg.evidence.rank_set import RankSet
from distdbg.evidence.run import RunEvidence
from distdbg.model import Report
from distdbg.report.text.collectives_text import strip_text
from distdbg.report.text.pieces import ASCII, BOX, Signs, join
from distdbg.report.text.report import COLOR, PLAIN, Style
from distdbg.report.text.tree_text import ranks_words, tree_text

_MOST_WAITS = 6


def report_picture(report: Report, evidence: RunEvidence) -> Picture | None:
    """The picture that belongs to a report, the ranks of its errors marked; None for a run without a dump."""
    if evidence.dump is None:
        return None
    hang = hang_of(evidence)
    culprits = {rank for f in report.verdict if f.severity == "error" for rank in f.ranks}
    known = hang.groups if hang is not None else groups(evidence.dump, {rank.rank: rank for rank in evidence.ranks})
    return picture_of(evidence.dump, groups=known, hang=hang, culprits=culprits)


def picture_text(
    picture: Picture, *, color: bool = False, ascii_only: bool = False, width: int = 100, most_lines: int = 48
) -> str:
    """All of it, without a newline at the end; `most_lines` is the tree's. `ascii_only` is for terminals that cannot
    show box characters."""
    style, signs, width = COLOR if color else PLAIN, ASCII if ascii_only else BOX, max(50, width)
    kinds = picture.tree.classes
    title = f"Where the ranks stand: {len(picture.tree.ranks)} ranks, {kinds} kind{'' if kinds == 1 else 's'} of stack"
    lines = [join("", [(style.strong, title)], signs, width, style.end)]
    lines += tree_text(picture.tree, picture.culprits, style=style, ascii_only=ascii_only, width=width, most=most_lines)
    if picture.waits:
        lines += ["", join("", [(style.strong, "Who waits for whom")], signs, width, style.end)]
        lines += list(_waits(picture, style, signs, width))
    strip = strip_text(picture.strips, picture.culprits, style=style, ascii_only=ascii_only, width=width)
    return "\n".join([*lines, "", *strip] if strip else lines)


def _waits(picture: Picture, style: Style, signs: Signs, width: int) -> Iterator[str]:
    """Those for the culprits first."""
    waits = sorted(picture.waits, key=lambda w: not RankSet.of(w.awaited) & picture.culprits)
    for wait in waits[:_MOST_WAITS]:
        awaited = RankSet.of(wait.awaited)
        who = style.error if awaited & picture.culprits else ""
        words = f"{ranks_words(RankSet.of(wait.waiting))} → {ranks_words(awaited)}"
        yield join("  ", [(who, words), (style.dim, wait.what)], signs, width, style.end)
    if len(waits) > _MOST_WAITS:
        yield join("  ", [(style.dim, f"… and {len(waits) - _MOST_WAITS} more")], signs, width, style.end)
