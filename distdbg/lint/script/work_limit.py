"""End the work on a file that takes too long: time grows faster than length for some files that no person writes."""

from __future__ import annotations

from collections.abc import Callable

from distdbg.lint.script.parsing import UnreadableScript

#: calls of `check` for one look at the clock, which takes longer than the rest of the call
_CALLS_PER_LOOK = 64


class TookTooLong(UnreadableScript):
    """Another machine, or this one at another time, may read the same file."""


class WorkLimit:
    """Raises TookTooLong from `check` once `clock` has advanced by `seconds` of CPU time since `restart`."""

    def __init__(self, clock: Callable[[], float], seconds: float) -> None:
        self._clock, self._seconds = clock, seconds
        self.restart()

    def restart(self) -> None:
        self._calls = 0
        self._end = self._clock() + self._seconds

    def check(self) -> None:
        self._calls += 1
        if not self._calls % _CALLS_PER_LOOK and self._clock() > self._end:
            raise TookTooLong(f"it takes more than {self._seconds:g} s of CPU time")
