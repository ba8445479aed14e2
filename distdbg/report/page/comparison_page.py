"""Render the comparison of two runs as a page: differences, figures, and charts over the steps."""

from __future__ import annotations

from distdbg.report.comparison import Comparison, Side, parts_of
from distdbg.report.page.course import side_by_side
from distdbg.report.page.renderer import render_page
from distdbg.report.text.comparison_text import head, shown

#: Of each kind of difference; --json has all.
_MOST_EACH = 200


def comparison_page(found: Comparison, a: Side, b: Side) -> str:
    parts = parts_of(found.differences)
    return render_page(
        "comparison.html",
        title="Two runs side by side",
        found=found,
        head=list(head(found)),
        bad=bool(found.new_errors),
        figures=[(f.what, shown(f, f.a, f.a_spread), shown(f, f.b, f.b_spread)) for f in found.figures],
        course=side_by_side({"A": a[0], "B": b[0]}),
        parts={part: differences[:_MOST_EACH] for part, differences in parts.items()},
        more={part: len(differences) - _MOST_EACH for part, differences in parts.items()},
    )
