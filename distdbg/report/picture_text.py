"""The picture of a dump for a terminal: the call tree, then the strip of collectives."""

from __future__ import annotations

from distdbg.evidence.picture import Picture, picture_of
from distdbg.evidence.run import RunEvidence
from distdbg.model import Report
from distdbg.report.pieces import ASCII, BOX, join
from distdbg.report.strip_text import strip_text
from distdbg.report.text import COLOR, PLAIN
from distdbg.report.tree_text import tree_text


def report_picture(report: Report, evidence: RunEvidence) -> Picture | None:
    """The picture that belongs to a report; None for a run without a dump."""
    if evidence.dump is None:
        return None
    culprits = report.culprits or {rank for f in report.verdict if f.severity == "error" for rank in f.ranks}
    groups = {name: members for rank in evidence.ranks for name, members in rank.groups.items()}
    return picture_of(evidence.dump, edges=report.edges, culprits=culprits, groups=groups)


def picture_text(
    picture: Picture, *, color: bool = False, ascii_only: bool = False, width: int = 100, most_lines: int = 48
) -> str:
    """Both parts, without a newline at the end; `most_lines` is the tree's. `ascii_only` is for terminals that cannot
    show box characters."""
    style, signs, width = COLOR if color else PLAIN, ASCII if ascii_only else BOX, max(50, width)
    kinds = picture.tree.classes
    title = f"Where the ranks stand: {len(picture.tree.ranks)} ranks, {kinds} kind{'' if kinds == 1 else 's'} of stack"
    lines = [join("", [(style.strong, title)], signs, width, style.end)]
    lines += tree_text(picture.tree, picture.culprits, style=style, ascii_only=ascii_only, width=width, most=most_lines)
    strip = strip_text(picture.strips, picture.culprits, style=style, ascii_only=ascii_only, width=width)
    return "\n".join([*lines, "", *strip] if strip else lines)
