"""Detect training mistakes that raise no error, in the rank and while they happen.

One file a guard, found by listing the folders; it has the name of its finding and one subclass of `Guard`. A guard
listens to the hook bus and sends facts; the rule of the same name judges them, with those of the other ranks. It adds
no collective, changes no number, random state or device, and keeps no object of the script alive.

Steps must cost next to nothing (benchmarks/worker_overhead.py), so a guard works once a pass over a loader, once a
save, or in a *window*: ten steps near the start, and again every thousand. Outside a window no guard gets steps.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from distdbg.worker.guards.shared.base import DEFAULT_MODES, Guard, GuardError

__all__ = ["DEFAULT_MODES", "VARIABLE", "Guard", "GuardError", "guard_classes", "read_modes"]

#: Folders of guards.
ROOMS = ("parallel", "training")
#: Set by the launch: `id=mode,id=mode`.
VARIABLE = "DISTDBG_GUARDS"


def guard_classes() -> Iterator[type[Guard]]:
    """Every guard, by the name of its file. A file that cannot be loaded raises."""
    from importlib import import_module

    here = os.path.dirname(__file__)
    files = sorted((name, room) for room in ROOMS for name in os.listdir(f"{here}/{room}"))
    for name, room in files:
        stem, dot, ending = name.partition(".")
        if dot and ending == "py" and stem != "__init__":
            module = import_module(f"{__name__}.{room}.{stem}")
            yield next(
                value
                for value in vars(module).values()
                if isinstance(value, type) and issubclass(value, Guard) and value.__module__ == module.__name__
            )


def read_modes(text: str) -> dict[str, str]:
    """`missing-set-epoch=fix,eval-with-grad=off` as a dict; other words are left out."""
    pairs = (word.partition("=") for word in text.split(","))
    return {name.strip(): mode.strip() for name, equals, mode in pairs if equals}
