"""Render the comparison of two runs for a terminal: the verdict, the figures, then all differences."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg.plain_text import clean
from distdbg.report.comparison import STEP_TIME, Comparison, Figure, parts_of
from distdbg.report.text.screen import PLAIN_SCREEN, Screen
from distdbg.wording import counted

#: This many differences of each kind are printed; --json has all.
_MOST_EACH = 12
_MOST_HEAD = 3


def comparison_text(found: Comparison, screen: Screen = PLAIN_SCREEN) -> str:
    """The comparison as text, without a final newline."""
    return "\n".join(_lines(found, screen))


def _lines(found: Comparison, screen: Screen) -> Iterable[str]:
    yield f"A  {clean(found.a)}"
    yield f"B  {clean(found.b)}"
    yield ""
    for line in head(found):
        yield from (screen.paint("strong", part) for part in screen.paragraph(line, others="  "))
    if found.figures:
        yield ""
    for figure in found.figures:
        a, b = shown(figure, figure.a, figure.a_spread), shown(figure, figure.b, figure.b_spread)
        yield f"{figure.what:<40} A {a:<28} B {b}"
    for part, differences in parts_of(found.differences).items():
        yield ""
        yield screen.paint("strong", part)
        for difference in differences[:_MOST_EACH]:
            yield from screen.paragraph(difference.words, "  ", "    ")
        if len(differences) > _MOST_EACH:
            yield f"  … and {len(differences) - _MOST_EACH} more: see --json"
    if found.in_both:
        yield ""
        yield from screen.paragraph(f"In both: {', '.join(found.in_both)}", others="  ")
    if found.unknown:
        yield ""
        yield "Unknown:"
        for unknown in found.unknown:
            yield from screen.paragraph(f"{unknown.what}, because {unknown.because}", "  ", "    ")


def head(found: Comparison) -> Iterable[str]:
    """How they went, each of it; of possible reasons only where to look. A run is not judged by what is not known."""
    parts = parts_of(found.differences)
    went = [d for part in ("outcome", "findings", "speed", "memory") for d in parts.get(part, [])]
    reasons = [part for part in ("versions", "code", "command", "world", "environment") if part in parts]
    for difference in went[:_MOST_HEAD]:
        yield difference.words
    if len(went) > _MOST_HEAD:
        yield f"and {counted(len(went) - _MOST_HEAD, 'more difference')} in outcome, findings, speed or memory"
    if not went:
        known = any(figure.what == STEP_TIME and figure.a and figure.b for figure in found.figures)
        yield "Both runs had the same outcome" + ("" if known else ", as far as is known") + "."
    if reasons:
        yield f"They differ in: {', '.join(reasons)}"
    else:
        yield "Both runs were launched in the same way."


def shown(figure: Figure, value: float | None, spread: tuple[float, float] | None) -> str:
    if value is None:
        return "unknown"
    if figure.unit == "bytes":
        return f"{value / 2**30:.2f} GiB"
    return f"{value:.4g} {figure.unit}" + (f" ({spread[0]:.4g} to {spread[1]:.4g})" if spread else "")
