"""The guards as a launch knows them: their names, the actions of each, and the variable that configures the ranks."""

from __future__ import annotations

from functools import cache

from distdbg.worker.guards import Guard, guard_classes


@cache
def guards() -> dict[str, type[Guard]]:
    """The guard classes by id."""
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
