"""End the work on a file that takes too long: time grows faster than length for some files that no person writes."""

from __future__ import annotations

from collections.abc import Callable

from distdbg.lint.script.parsing import UnreadableScript

#: Nodes of a tree between two looks at the clock, which takes as long as one of them.
_NODES_PER_LOOK = 500


class TookTooLong(UnreadableScript):
    """Another machine, or this one at another time, may read the same file."""


class WorkLimit:
    """Raises TookTooLong from `check` once `clock` has advanced by `seconds` of CPU time since `restart`."""

    def __init__(self, clock: Callable[[], float], seconds: float) -> None:
        self._clock, self._seconds = clock, seconds
        self.restart()

    def restart(self) -> None:
        self._nodes = 0
        self._end = self._clock() + self._seconds

    def check(self, nodes: int = _NODES_PER_LOOK) -> None:
        """`nodes`: how many the caller is about to look at; without it, the clock is read now."""
        self._nodes += nodes
        if self._nodes >= _NODES_PER_LOOK:
            self._nodes = 0
            if self._clock() > self._end:
                raise TookTooLong(f"it takes more than {self._seconds:g} s of CPU time")
