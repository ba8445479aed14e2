"""Apply fixes to a file's text, and compare the texts."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from distdbg.lint.linting import lint_text
from distdbg.lint.rule import Insert
from distdbg.lint.script.parsing import UnreadableScript

_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$")  # as the parser counts them


def with_edits(text: str, edits: Iterable[Insert]) -> str:
    """The text with each line inserted above its place, indented and ended as the line there is."""
    lines = _LINES.findall(text)
    for edit in sorted(edits, key=lambda e: e.before, reverse=True):
        below = lines[edit.before - 1]
        indent = below[: len(below) - len(below.lstrip(" \t"))]
        ending = _ending(below) or _ending(lines[0]) or "\n"
        lines.insert(edit.before - 1, f"{indent}{edit.text}{ending}")
    return "".join(lines)


def _ending(line: str) -> str:
    return line[len(line.rstrip("\r\n")) :]


def corrected(path: str, text: str, edits: Iterable[Insert]) -> str | None:
    """The text with all edits, if it is still Python and lint finds nothing new in it; else None."""
    result = with_edits(text, edits)
    try:
        before, after = (Counter(f.id for f in lint_text(path, one).findings) for one in (text, result))
    except UnreadableScript:
        return None
    return None if after - before else result


def diff(path: str, before: str, after: str) -> Iterator[str]:
    """Yield the lines of a unified diff, as `patch -p0` reads it."""
    for line in difflib.unified_diff(_LINES.findall(before), _LINES.findall(after), path, path):
        yield line if line.endswith(("\n", "\r")) else f"{line}\n\\ No newline at end of file\n"
