"""Scripts as lint reads them: files and folders on the command line, notebooks' code cells, what cannot be read."""

from __future__ import annotations

import fnmatch
import io
import json
import os
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distdbg.collect.files.folder_files import FolderFiles
from distdbg.errors import UsageError
from distdbg.lint.script.parsing import MOST_BYTES
from distdbg.rundir import open_regular
from distdbg.whole_file import write_whole

_SUFFIXES = (".py", ".ipynb")
#: never entered by themselves; a path that is named on the command line always is
_SKIPPED_FOLDERS = {"node_modules", "__pycache__", "site-packages", "build", "dist", "distdbg-runs"}


@dataclass(frozen=True)
class Source:
    """One file: its text, or why there is none."""

    path: str
    text: str | None
    because: str = ""

    @property
    def is_notebook(self) -> bool:
        return self.path.endswith(".ipynb")


def find_sources(paths: Sequence[str], exclude: Sequence[str] = ()) -> Iterator[Source]:
    """Every file that is named, and every script and notebook below every folder that is named, once, by name."""
    seen: set[str] = set()
    for name in paths:
        path = Path(name)
        if not path.exists():
            raise UsageError(f"there is no {name!r}", "Name files or folders that exist.")
        below = FolderFiles(path, _SUFFIXES, _enters)
        for found in below if path.is_dir() else [path]:
            whole = os.path.realpath(found)  # of a link to itself it is the link
            if whole not in seen and not _excluded(found, exclude):
                seen.add(whole)
                yield read_source(found)
        yield from (Source(name, None, because) for name, because in below.unread)


def _enters(folder: str) -> bool:
    return not folder.startswith(".") and folder not in _SKIPPED_FOLDERS


def _excluded(path: Path, patterns: Sequence[str]) -> bool:
    text = path.as_posix()
    return any(
        fnmatch.fnmatch(text, p) or fnmatch.fnmatch(text, f"*/{p}") or f"/{p.strip('/')}/" in f"/{text}"
        for p in patterns
    )


def read_source(path: Path) -> Source:
    """A regular file's text by the encoding that it declares; a pipe or device is not opened."""
    name = path.as_posix()
    try:
        with open_regular(path) as file:
            raw = file.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            return Source(name, None, f"it is larger than {MOST_BYTES // 1_000_000} MB")
        if path.suffix == ".ipynb":
            return Source(name, _notebook(raw))
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        return Source(name, raw.decode(encoding))
    except OSError as error:
        return Source(name, None, error.strerror or str(error))
    except UnicodeDecodeError as error:
        return Source(name, None, f"byte {error.start} is no {error.encoding}")
    except (SyntaxError, LookupError, ValueError, RecursionError) as error:
        return Source(name, None, str(error) or type(error).__name__)


def _notebook(raw: bytes) -> str:
    """The code cells one below the other; what only a notebook understands becomes empty lines."""
    try:
        page: Any = json.loads(raw)
    except ValueError:
        raise ValueError("it is no JSON, as a notebook must be") from None
    cells = page.get("cells") if isinstance(page, dict) else None
    if not isinstance(cells, list):
        raise ValueError("it is no notebook: it has no cells")  # noqa: TRY004
    lines: list[str] = []
    for cell in cells:
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source") or ""
            text = source if isinstance(source, str) else "".join(map(str, source)) if isinstance(source, list) else ""
            whole = text.lstrip().startswith("%%")  # the cell is in another language
            lines += ["" if whole or line.lstrip().startswith(("%", "!", "?")) else line for line in text.split("\n")]
    return "\n".join(lines) + "\n"


def write_source(path: Path, text: str) -> None:
    """Replace a file's text, in the encoding that it declares, or the file that a link leads to."""
    with path.open("rb") as file:
        encoding, _ = tokenize.detect_encoding(file.readline)
    write_whole(path.resolve(), text.encode(encoding), private=False, sync=True)  # nobody could make it again
