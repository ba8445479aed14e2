"""Run checks in parallel with a timeout: a file system or a driver may hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

Look = Callable[[], dict[str, Any]]


def look_all(looks: Mapping[str, Look], within: float) -> dict[str, dict[str, Any]]:
    """Name -> facts, or {"unknown": why}. Never raises; what hangs goes on in a thread that keeps nobody."""
    found: dict[str, dict[str, Any]] = {}

    def run(name: str, look: Look) -> None:
        try:
            found[name] = look()
        except Exception as error:
            found[name] = {"unknown": str(error) or type(error).__name__}

    threads = {name: threading.Thread(target=run, args=(name, look), daemon=True) for name, look in looks.items()}
    for thread in threads.values():
        thread.start()
    deadline = time.monotonic() + within
    for thread in threads.values():
        thread.join(max(0.0, deadline - time.monotonic()))
    return {name: found.get(name, {"unknown": f"no answer within {within:g} s"}) for name in looks}
