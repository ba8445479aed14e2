"""Render memory snapshots as one SVG file, for papers, issues and slides.

It is what the page draws before its script runs, with the names of the stacks. It refers to no other file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape, quoteattr

from distdbg.evidence.memory.answer import MemoryAnswer, gib
from distdbg.plain_text import clean
from distdbg.report.page.memory_drawing import HEIGHT, HUES, WIDTH, segment_map, still
from distdbg.report.text.memory_text import title

_MOST_PICTURES = 4
_MOST_NAMES = 12
_LEFT, _TOP, _ROW, _GAP = 80.0, 40.0, 18.0, 36.0
#: most letters of a line, and of a title, which are larger
_LETTERS, _LARGE_LETTERS = 150, 134
#: As in templates/memory.css.
_COLORS = ("#4c86d8", "#e2903c", "#3aa37f", "#cf5f7f", "#8f74d3", "#b59a2a", "#44a3b8", "#b3694a", "#7a9a3d", "#b55fb3",
           "#6b7f99", "#d0735f")  # fmt: skip
_OTHER = "#b9bfc7"
_STATES = {"used": _COLORS[10], "free": "#2f9e63", "spare": _OTHER, "pending": "#d99a1c"}
_STYLE = (
    "text{font:11px ui-monospace,Menlo,Consolas,monospace;fill:#1d2430}.head{font-weight:700;font-size:13px}"
    ".soft{fill:#5d6775}.end{text-anchor:end}.tick{stroke:#dfe3e8}"
    ".reserved{fill:none;stroke:#1d2430;stroke-width:1.2;stroke-dasharray:4 3}"
    ".peak{stroke:#c2372e;stroke-dasharray:2 3}.over{paint-order:stroke;stroke:#fff;stroke-width:3px}"
)


def memory_svg(answers: Sequence[MemoryAnswer]) -> str:
    """One below the other, those with an error first, then those that hold most; four at most."""
    chosen = sorted(answers, key=lambda a: (a.oom is None, -a.peak.active))[:_MOST_PICTURES]
    parts: list[str] = []
    y = 0.0
    for answer in chosen:
        lines, height = _picture(answer)
        parts += [f'<g transform="translate({_LEFT},{y + _TOP:.0f})">', *lines, "</g>"]
        y += height + _TOP
    if len(answers) > len(chosen):
        parts.append(_text(_LEFT, y + 14, f"{len(answers) - len(chosen)} more are not drawn", "soft"))
        y += 24
    wide, high = WIDTH + _LEFT + 30, max(y, 24)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high:.0f}" width="{wide:.0f}" '
        f'height="{high:.0f}">',
        f"<style>{_STYLE}</style>",
        '<rect width="100%" height="100%" fill="#fff"/>',
        *parts,
        "</svg>\n",
    ])  # fmt: skip


def _picture(answer: MemoryAnswer) -> tuple[list[str], float]:
    """The drawing at (0, 0), and its height."""
    lines = [_text(0, -16, _end_of(title(answer)), "head"), *_chart(answer)]
    y = HEIGHT + _GAP
    names = list(_names(answer))
    for n, (color, words) in enumerate(names):
        at = y + n * _ROW
        lines += [f'<rect x="0" y="{at - 9:.0f}" width="11" height="11" fill="{color}"/>', _text(18, at, words)]
    y += len(names) * _ROW
    if answer.oom is not None:
        drawn = segment_map(answer.oom)
        lines.append(_text(0, y + 14, f"segments when {gib(answer.oom.request)} could not be had: used, "
                                      f"free for it {gib(answer.oom.free_usable)} (green), the largest hole "
                                      f"{gib(answer.oom.largest_hole)}", "head"))  # fmt: skip
        y += 24
        lines += [
            f'<rect x="{b.x:.2f}" y="{y + b.y:.0f}" width="{b.width:.2f}" height="{drawn.row:.0f}" '
            f'fill="{_STATES.get(b.kind, _OTHER)}"><title>{_words(b.title)}</title></rect>'
            for b in drawn.pieces
        ]
        y += drawn.height
    return lines, y + 12


def _chart(answer: MemoryAnswer) -> Iterator[str]:
    drawn = still(answer)
    for y, words in drawn.marks:
        yield f'<line class="tick" x1="0" x2="{WIDTH:.0f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield _text(-6, y + 4, words, "soft end")
    for area in drawn.areas:
        color = _OTHER if area.hue < 0 else _COLORS[area.hue % HUES]
        yield f'<path fill="{color}" d="{area.d}"><title>{_words(area.title)}</title></path>'
    yield f'<path class="reserved" d="{drawn.reserved}"/>'
    x, y = drawn.peak
    yield f'<line class="peak" x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{HEIGHT:.0f}"/>'
    near_left = x < WIDTH / 4
    words = f"peak {gib(answer.peak.active)}; dashed: reserved, {gib(answer.peak.reserved)}"
    yield _text(x + (8 if near_left else -8), y - 3, words, "over" if near_left else "over end")
    yield _text(0, HEIGHT + 15, drawn.begin, "soft")
    yield _text(WIDTH, HEIGHT + 15, drawn.end, "soft end")


def _names(answer: MemoryAnswer) -> Iterator[tuple[str, str]]:
    """(colour, words) of what holds most at the peak; stacks that have no colour of their own are the others."""
    hues = {stack: n % HUES for n, stack in enumerate(answer.overview.stacks)}
    for holder in answer.peak.holders[:_MOST_NAMES]:
        stack = answer.stacks[holder.stack]
        callers = "".join(f" < {caller}" for caller in stack.callers[1:3])
        kinds = f" ({', '.join(holder.kinds)})" if holder.kinds else ""
        color = _COLORS[hues[holder.stack]] if holder.stack in hues else _OTHER
        yield color, f"{gib(holder.bytes):>9}  {stack.label}{kinds}{callers}"
    rest = answer.peak.rest + sum(holder.bytes for holder in answer.peak.holders[_MOST_NAMES:])
    if rest:
        yield _OTHER, f"{gib(rest):>9}  all other stacks"


def _text(x: float, y: float, words: str, kind: str = "") -> str:
    named = f" class={quoteattr(kind)}" if kind else ""
    return f'<text x="{x:.0f}" y="{y:.1f}"{named} xml:space="preserve">{_words(words)}</text>'


def _end_of(text: str) -> str:
    """A title begins with a path, whose end says more than its beginning."""
    return text if len(text) <= _LARGE_LETTERS else f"…{text[1 - _LARGE_LETTERS :]}"


def _words(text: str) -> str:
    short = clean(text).replace("\n", " ")
    return escape(short if len(short) <= _LETTERS else f"{short[: _LETTERS - 1]}…")
