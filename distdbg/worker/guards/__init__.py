"""Guards: what goes wrong in training without raising anything, noticed in the rank while it happens.

One file a guard, found by listing the rooms; each bears the stem of its finding's id and holds one subclass of
`Guard`. A guard listens on the hook bus and tells facts; what they mean, and whatever needs several ranks, is judged
outside, by the rule of the same name. It adds no collective, touches no number, random state or device, and keeps
nothing alive that the script would have freed.

What a step may cost is next to nothing (benchmarks/worker_overhead.py), so a guard works once a pass over a loader,
once a save, or in a *window*: a few steps near the start, and again every thousand. Outside of a window no guard hears
of a step.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from distdbg.worker.guards.shared.base import DEFAULT_MODES, Guard, GuardError

__all__ = ["DEFAULT_MODES", "VARIABLE", "Guard", "GuardError", "guard_classes", "read_modes"]

#: Folders of guards.
ROOMS = ("parallel", "training")
#: How a launch tells its ranks: `id=mode,id=mode`.
VARIABLE = "DISTDBG_GUARDS"


def guard_classes() -> Iterator[type[Guard]]:
    """Every guard, by the name of its file. A file that cannot be loaded raises: whoever asks decides."""
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
    """`missing-set-epoch=fix,eval-with-grad=off` as a dict; what is no pair is left out."""
    pairs = (word.partition("=") for word in text.split(","))
    return {name.strip(): mode.strip() for name, equals, mode in pairs if equals}
