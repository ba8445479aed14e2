"""The checks before every job: no process, no connection, milliseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from distdbg.collect.preflight import disk, interfaces, limits
from distdbg.collect.preflight.looking import Look


def looks(run: Path) -> dict[str, Look]:
    """`run` is the run's directory, whose disk has to bear its logs."""
    return {"disk": lambda: disk.look(run), "limits": limits.look, "interfaces": interfaces.look}


def look_alone(run: Path) -> dict[str, dict[str, Any]]:
    """As look_all, one after the other: for a process that is about to fork, and must have no thread."""
    found: dict[str, dict[str, Any]] = {}
    for name, look in looks(run).items():
        try:
            found[name] = look()
        except Exception as error:  # noqa: PERF203 -- three looks
            found[name] = {"unknown": str(error) or type(error).__name__}
    return found
