"""Find the source files that a profile names, and use those that are older than the profile."""

from __future__ import annotations

import tokenize
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from distdbg.evidence.trace.lines import lines_of
from distdbg.evidence.trace.places import Place

_MOST_BYTES = 4 << 20


class Sources:
    """`written` is when the profile was (epoch seconds): a source that was changed since then is another."""

    def __init__(self, folders: Sequence[Path], written: float) -> None:
        self._folders, self._written = tuple(dict.fromkeys(folders)), written
        self._read = cache(self._text)

    def lines(self, place: Place, kind: str) -> tuple[int, ...]:
        """Where such a call stands in the place's function; none where its source is not at hand."""
        text = self._read(place.file)
        return lines_of(text, place, kind) if text else ()

    def _text(self, file: str) -> str:
        """Empty where it is not found, or where two that differ fit."""
        found = {text for folder in self._folders if (text := self._one(folder / file))}
        return found.pop() if len(found) == 1 else ""

    def _one(self, path: Path) -> str:
        try:
            state = path.stat()
            if not path.is_file() or state.st_size > _MOST_BYTES or state.st_mtime > self._written:
                return ""
            with tokenize.open(path) as file:
                return file.read()
        except (OSError, SyntaxError, ValueError):
            return ""


def source_folders(job: object) -> tuple[Path, ...]:
    """Where the script of a run may lie: its working directory, and the folder of the script."""
    told = job if isinstance(job, dict) else {}
    cwd, program = told.get("cwd"), told.get("program")
    if not isinstance(cwd, str):
        return ()
    scripts = [word for word in program or () if isinstance(word, str) and word.endswith(".py")]
    return (*((Path(cwd) / script).parent for script in scripts[:1]), Path(cwd))
