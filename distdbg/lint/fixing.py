"""Apply fixes that are certain to a file's text."""

from __future__ import annotations

import re
from collections.abc import Iterable

from distdbg.lint.rule import Insert


def with_edits(text: str, edits: Iterable[Insert]) -> str:
    """The text with each line inserted above its place, indented and ended as the line there is."""
    lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$", text)  # as the parser counts them
    for edit in sorted(set(edits), key=lambda e: e.before, reverse=True):
        below = lines[edit.before - 1]
        indent = below[: len(below) - len(below.lstrip(" \t"))]
        ending = "\r\n" if below.endswith("\r\n") else "\n"
        lines.insert(edit.before - 1, f"{indent}{edit.text}{ending}")
    return "".join(lines)
