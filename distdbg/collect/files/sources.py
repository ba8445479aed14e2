"""Collect what lint reads: its settings, files and folders of the command line, code cells of notebooks.

Settings come from `[tool.distdbg.lint]` of the nearest pyproject.toml and from the command line.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import io
import os
import re
import sys
import tokenize
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from distdbg.collect.files.folder_files import FolderFiles
from distdbg.errors import UsageError
from distdbg.evidence import jsonl
from distdbg.given_file import read_given
from distdbg.lint import REMOVED, docs, stable_ids
from distdbg.lint.script.parsing import MOST_BYTES
from distdbg.rundir import open_regular
from distdbg.whole_file import write_whole

_KEYS = ("select", "ignore", "exclude")
_SUFFIXES = (".py", ".ipynb")
#: a file of any other ending is a script only where its first line says so
_ENDINGS = ("", ".py", ".pyw", ".pyi")
_NAMES_PYTHON = re.compile(rb"#![^\n]*python")
#: Parts of a dotted key: Python's parser takes memory by the square of their number.
_MOST_KEY_PARTS = 100
_DEEP_KEY = re.compile(
    rf"""(?:^|[\[{{,])[ \t]*(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{_MOST_KEY_PARTS}}}""",
    re.ASCII | re.MULTILINE,
)
#: a notebook has pictures in it, which are not read
_MOST_BYTES_OF_NOTEBOOK = 40_000_000
#: never entered by themselves; a path that is named on the command line always is
_SKIPPED_FOLDERS = {"node_modules", "__pycache__", "site-packages", "build", "dist", "distdbg-runs"}


@dataclass(frozen=True)
class LintSettings:
    wanted: frozenset[str]
    exclude: tuple[str, ...]


def settings_for(
    paths: Sequence[str],
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    exclude: Sequence[str] = (),
    *,
    preview: bool = False,
) -> LintSettings:
    """Options win over the file: --select replaces its list, --ignore and --exclude add to it.

    Without a list of selected ids these are the stable rules, with `preview` all rules.
    """
    table, where = _table(Path(paths[0]))
    known = {doc.id for doc in docs()}
    chosen = _ids(select, known, "--select") or _ids(table.get("select", ()), known, where)
    chosen = chosen or (known if preview else set(stable_ids()))
    ignored = _ids(ignore, known | REMOVED, "--ignore") | _ids(table.get("ignore", ()), known | REMOVED, where)
    return LintSettings(frozenset(chosen - ignored), (*exclude, *table.get("exclude", ())))


def _ids(names: Sequence[str], known: set[str], where: str) -> set[str]:
    for name in names:
        if name not in known:
            rules = ", ".join(sorted(known - REMOVED))
            raise UsageError(f"{where}: no rule is called {name!r}", f"There are: {rules}.")
    return set(names)


def _table(start: Path) -> tuple[dict[str, Any], str]:
    here = start.resolve()
    for folder in (here, *here.parents):
        path = folder / "pyproject.toml"
        if os.access(folder, os.X_OK) and path.is_file():
            return _read_table(path), f"{path} [tool.distdbg.lint]"
    return {}, ""


def _read_table(path: Path) -> dict[str, Any]:
    if sys.version_info < (3, 11):
        try:
            import tomli as tomllib
        except ImportError:  # Python 3.10 without tomli cannot read it: its defaults hold
            return {}
    else:
        import tomllib
    try:
        text = read_given(path).decode("utf-8")
        if _DEEP_KEY.search(text):
            raise ValueError(f"a key has more than {_MOST_KEY_PARTS} parts")  # noqa: TRY301
        whole = tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else f"it is not TOML: {error}"
        raise UsageError(f"{path} cannot be read: {why}", "Correct it, or lint from another folder.") from None
    table: Any = whole
    for key in ("tool", "distdbg", "lint"):
        table = table.get(key, {})
        if not isinstance(table, dict):
            raise UsageError(f"{path}: {key} is no table", "Write [tool.distdbg.lint] above its keys.")
    for key, value in table.items():
        if key not in _KEYS:
            raise UsageError(f"{path}: [tool.distdbg.lint] has no {key!r}", f"It takes {', '.join(_KEYS)}.")
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise UsageError(f"{path}: [tool.distdbg.lint] {key} is no list of strings", 'Write it as ["…"].')
    return dict(table)


@dataclass(frozen=True)
class SourceText:
    """One file: its text, or why there is none."""

    path: str
    text: str | None
    because: str = ""
    #: of a notebook: number of each code cell, Markdown cells counted, and its first line in `text`
    cells: tuple[tuple[int, int], ...] = ()

    @property
    def is_notebook(self) -> bool:
        return self.path.endswith(".ipynb")

    def in_cell(self, line: int) -> tuple[int, int]:
        """(cell, line in the cell) of a line of the text."""
        cell, first = next(c for c in reversed(((1, 1), *self.cells)) if c[1] <= line)
        return cell, line - first + 1


def find_sources(paths: Sequence[str], exclude: Sequence[str] = ()) -> Iterator[SourceText]:
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
        yield from (SourceText(name, None, because) for name, because in below.unread)


def _enters(folder: str) -> bool:
    return not folder.startswith(".") and folder not in _SKIPPED_FOLDERS


def _excluded(path: Path, patterns: Sequence[str]) -> bool:
    text = path.as_posix()
    return any(
        fnmatch.fnmatch(text, p) or fnmatch.fnmatch(text, f"*/{p}") or f"/{p.strip('/')}/" in f"/{text}"
        for p in patterns
    )


def read_source(path: Path) -> SourceText:
    """A regular file's text by the encoding that it declares; a pipe or device is not opened."""
    return _read_source(path.as_posix(), lambda: open_regular(path))


def read_standard_input(name: str) -> SourceText:
    """The text on standard input, as that of a file of this name."""
    return _read_source(name, lambda: contextlib.nullcontext(sys.stdin.buffer))


def _read_source(name: str, opened: Callable[[], AbstractContextManager[BinaryIO]]) -> SourceText:
    try:
        with opened() as file:
            return source_of(name, file.read(_most_bytes(name) + 1) or b"")  # None where it does not block
    except OSError as error:
        return SourceText(name, None, error.strerror or str(error))


def _most_bytes(name: str) -> int:
    return _MOST_BYTES_OF_NOTEBOOK if name.endswith(".ipynb") else MOST_BYTES


def source_of(name: str, raw: bytes) -> SourceText:
    """The text of a file of that name; of a notebook, its code cells."""
    try:
        if len(raw) > _most_bytes(name):
            return SourceText(name, None, f"it is larger than {_most_bytes(name) // 1_000_000} MB")
        if name.endswith(".ipynb"):
            text, cells = _notebook(raw)
            return SourceText(name, text, cells=cells)
        ending = Path(name).suffix
        if ending not in _ENDINGS and not _NAMES_PYTHON.match(raw):
            return SourceText(name, None, f"its name ends in {ending}: scripts end in .py, notebooks in .ipynb")
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        return SourceText(name, raw.decode(encoding))
    except UnicodeDecodeError as error:
        return SourceText(name, None, f"byte {error.start} is no {error.encoding}")
    except (SyntaxError, LookupError, ValueError, RecursionError) as error:
        undeclared = "missing encoding" in str(error)  # so tokenize says of bytes that are no UTF-8
        because = "it is no UTF-8, and declares no other encoding" if undeclared else str(error)
        return SourceText(name, None, because or type(error).__name__)


def _notebook(raw: bytes) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The code cells one below the other; what only a notebook understands becomes empty lines."""
    try:
        page: Any = jsonl.parse(raw)
    except ValueError:
        raise ValueError("it is no JSON, as a notebook must be") from None
    cells = page.get("cells") if isinstance(page, dict) else None
    if not isinstance(cells, list):
        raise ValueError("it is no notebook: it has no cells")  # noqa: TRY004
    lines: list[str] = []
    begins: list[tuple[int, int]] = []
    for number, cell in enumerate(cells, start=1):
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source") or ""
            text = source if isinstance(source, str) else "".join(map(str, source)) if isinstance(source, list) else ""
            begins.append((number, len(lines) + 1))
            whole = text.lstrip().startswith("%%")  # the cell is in another language
            lines += ["" if whole or line.lstrip().startswith(("%", "!", "?")) else line for line in text.split("\n")]
    return "\n".join(lines) + "\n", tuple(begins)


def write_source(path: Path, before: str, after: str) -> None:
    """Replace the text `before` of a file, in the encoding that it declares.

    Raises OSError; then the file is as it was. Refuses a link, a file with several names, one that its owner protects
    from writing or another user owns, and one whose bytes are no longer those of `before`.
    """
    status = path.lstat()
    with open_regular(path) as file:
        raw = file.read()
    unchanged = source_of(path.as_posix(), raw).text == before
    encoding = tokenize.detect_encoding(io.BytesIO(raw).readline)[0] if unchanged else ""
    problems = (
        (path.is_symlink(), "it is a symbolic link"),
        (status.st_nlink > 1, f"{status.st_nlink} hard links lead to it"),
        (status.st_uid != os.geteuid(), "another user owns it"),
        (not status.st_mode & 0o222 or not os.access(path, os.W_OK), "it is write-protected"),
        (not unchanged, "it has changed since it was read"),
        (unchanged and before.encode(encoding) != raw, f"its encoding {encoding} would change other bytes of it"),
    )
    problem = next((text for found, text in problems if found), None)
    if problem is not None:
        raise OSError(errno.EPERM, problem, str(path))
    write_whole(path, after.encode(encoding), private=False, sync=True)  # nobody could make it again
