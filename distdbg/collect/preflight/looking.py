"""Run checks in parallel with a timeout, as a file system or a driver may hang; those before every job also in turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from distdbg.collect.preflight import disk, interfaces, limits

Look = Callable[[], dict[str, Any]]


def look_all(looks: Mapping[str, Look], within: float) -> dict[str, dict[str, Any]]:
    """Name -> facts, or {"unknown": why}. Never raises; a check that hangs continues in a daemon thread."""
    found: dict[str, dict[str, Any]] = {}

    def run(name: str, look: Look) -> None:
        found[name] = _facts_of(look)

    threads = {name: threading.Thread(target=run, args=(name, look), daemon=True) for name, look in looks.items()}
    for thread in threads.values():
        thread.start()
    deadline = time.monotonic() + within
    for thread in threads.values():
        thread.join(max(0.0, deadline - time.monotonic()))
    return {name: found.get(name, {"unknown": f"no answer within {within:g} s"}) for name in looks}


def looks(run: Path) -> dict[str, Look]:
    """`run` is the run's directory, whose disk has to bear its logs."""
    return {"disk": lambda: disk.look(run), "limits": limits.look, "interfaces": interfaces.look}


def look_alone(run: Path) -> dict[str, dict[str, Any]]:
    """Like look_all, one check after the other: for a process that is about to fork, and must have no thread."""
    return {name: _facts_of(look) for name, look in looks(run).items()}


def _facts_of(look: Look) -> dict[str, Any]:
    try:
        return look()
    except Exception as error:
        return {"unknown": str(error) or type(error).__name__}
