"""Detect training mistakes that raise no error, in the rank and while they happen.

One file a family, found by listing the folder; each subclass of `Guard` in it has the id of its finding. A guard
listens to the hook bus and sends facts; the rule of the same name judges them, with those of the other ranks. It adds
no collective, changes no number, random state or device, and keeps no object of the script alive.

Steps must cost next to nothing (benchmarks/worker_overhead.py), so a guard works once a pass over a loader, once a
save, or in a *window*: ten steps near the start, and again every thousand. Outside a window no guard gets steps.
"""

from __future__ import annotations

import os

from distdbg.worker.guards.shared.base import DEFAULT_MODES, Guard, GuardError

__all__ = ["DEFAULT_MODES", "VARIABLE", "Guard", "GuardError", "guard_classes", "read_modes"]

#: Set by the launch: `id=mode,id=mode`.
VARIABLE = "DISTDBG_GUARDS"


def guard_classes() -> list[type[Guard]]:
    """Every guard, sorted by id. A file that cannot be loaded raises."""
    from importlib import import_module

    files = (name.partition(".") for name in os.listdir(os.path.dirname(__file__)))
    modules = [import_module(f"{__name__}.{stem}") for stem, _, end in files if end == "py" and stem != "__init__"]
    values = (value for module in modules for value in vars(module).values())
    found = {value for value in values if isinstance(value, type) and issubclass(value, Guard) and value.id}
    return sorted(found, key=lambda guard: guard.id)


def read_modes(text: str) -> dict[str, str]:
    """`missing-set-epoch=fix,eval-with-grad=off` as a dict; other words are left out."""
    pairs = (word.partition("=") for word in text.split(","))
    return {name.strip(): mode.strip() for name, equals, mode in pairs if equals}
