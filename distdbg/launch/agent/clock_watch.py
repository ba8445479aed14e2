"""Notice that the clock of the node is set while the job runs (NTP, a person): recorded times before and after do not
compare."""

from __future__ import annotations

import time

#: Durations are shown in seconds: less is not a wrong statement. NTP slews by 0.5 ms a second at most.
_LEAST_S = 1.0


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)  # goes on while the machine is suspended, as the clock does


class ClockWatch:
    """`change` is called every second."""

    def __init__(self) -> None:
        self._booted = time.time() - _since_boot()

    def change(self) -> float:
        """Return by how many seconds the clock was set since the last call; 0 if it was not."""
        before, self._booted = self._booted, time.time() - _since_boot()
        changed_s = self._booted - before
        return changed_s if abs(changed_s) >= _LEAST_S else 0.0
