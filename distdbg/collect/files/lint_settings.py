"""Read the settings of lint from `[tool.distdbg.lint]` of the nearest pyproject.toml and from the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distdbg.errors import UsageError
from distdbg.given_file import read_given
from distdbg.lint import docs

_KEYS = ("select", "ignore", "exclude")


@dataclass(frozen=True)
class LintSettings:
    wanted: frozenset[str]
    exclude: tuple[str, ...]


def settings_for(
    paths: Sequence[str], select: Sequence[str], ignore: Sequence[str], exclude: Sequence[str]
) -> LintSettings:
    """Options win over the file: --select replaces its list, --ignore and --exclude add to it."""
    table, where = _table(Path(paths[0]))
    known = {doc.id for doc in docs()}
    chosen = _ids(select, known, "--select") or _ids(table.get("select", ()), known, where) or known
    ignored = _ids(ignore, known, "--ignore") | _ids(table.get("ignore", ()), known, where)
    return LintSettings(frozenset(chosen - ignored), (*exclude, *table.get("exclude", ())))


def _ids(names: Sequence[str], known: set[str], where: str) -> set[str]:
    for name in names:
        if name not in known:
            raise UsageError(f"{where}: no rule is called {name!r}", f"There are: {', '.join(sorted(known))}.")
    return set(names)


def _table(start: Path) -> tuple[dict[str, Any], str]:
    here = start.resolve()
    for folder in (here, *here.parents):
        path = folder / "pyproject.toml"
        if os.access(folder, os.X_OK) and path.is_file():
            return _read(path), f"{path} [tool.distdbg.lint]"
    return {}, ""


def _read(path: Path) -> dict[str, Any]:
    if sys.version_info < (3, 11):
        try:
            import tomli as tomllib
        except ImportError:  # Python 3.10 without tomli cannot read it: its defaults hold
            return {}
    else:
        import tomllib
    try:
        whole = tomllib.loads(read_given(path).decode("utf-8"))
    except (OSError, ValueError) as error:
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
