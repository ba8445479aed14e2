"""The guards as a launch knows them: which there are, what each can be told to do, and how the ranks are told."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from distdbg.worker.guards import VARIABLE, Guard, guard_classes

__all__ = ["GUARDS_VARIABLE", "guards", "mistake", "write_modes"]
GUARDS_VARIABLE = VARIABLE


@cache
def guards() -> dict[str, type[Guard]]:
    """By id."""
    return dict(sorted((guard.id, guard) for guard in guard_classes()))


def mistake(name: str, mode: str) -> str:
    """A sentence where there is no such guard, or where it has no such mode; else nothing."""
    if (name, mode) == ("all", "off"):
        return ""
    guard = guards().get(name)
    if guard is None:
        import difflib

        near = difflib.get_close_matches(name, guards(), 1)
        return f"no guard is called {name!r}; " + (
            f"did you mean {near[0]!r}?" if near else "`distdbg guards` lists them"
        )
    if mode in guard.modes:
        return ""
    if mode == "error":
        return f"{name} is judged over all ranks, once it has happened: it can be {' or '.join(guard.modes)}"
    if mode == "fix":
        return f"what {name} finds cannot be mended safely: it can be {' or '.join(guard.modes)}"
    return f"{name} can be {' or '.join(guard.modes)}, and not {mode!r}"


def write_modes(modes: Mapping[str, str]) -> str:
    return ",".join(f"{name}={mode}" for name, mode in modes.items())
