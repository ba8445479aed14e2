"""Measure how long a rank's steps take, from its heartbeat page, which has the time of the last step.

Looked at ten times a second. A step that is longer than that is measured by itself; of shorter ones, the mean of those
between two looks. Standing in exit.json, and as `step_ms` in metrics.jsonl:

    "step_times": {"windows": 600, "median": 12.1, "low": 11.8, "high": 12.9}      milliseconds; low and high: quartiles
"""

from __future__ import annotations

from collections import deque
from statistics import median, quantiles

#: The first ones set up, compile and allocate.
_WARM_STEPS = 3
#: The newest: of quick steps, those of the last minute.
_MOST_WINDOWS = 600


class StepTimes:
    """One rank's. Counting begins after its first steps."""

    def __init__(self) -> None:
        self._windows: deque[float] = deque(maxlen=_MOST_WINDOWS)
        self._last: tuple[int, int] | None = None

    def look(self, step: int, step_ns: int) -> None:
        """`step_ns` is when the step numbered `step` was done, by any clock that goes forward."""
        if step < _WARM_STEPS:
            return
        if self._last is not None:
            steps, spent = step - self._last[0], step_ns - self._last[1]
            if steps == 0:
                return
            if steps > 0 and spent > 0:
                self._windows.append(spent / 1e6 / steps)
        self._last = (step, step_ns)

    def told(self) -> dict[str, float]:
        """Empty before two looks have seen a step between them."""
        if not self._windows:
            return {}
        parts = quantiles(self._windows, n=4, method="inclusive") if len(self._windows) > 1 else [self._windows[0]] * 3
        return {"windows": len(self._windows)} | {
            name: round(part, 4) for name, part in zip(("low", "median", "high"), parts, strict=True)
        }

    def newest(self) -> float | None:
        """The median of the newest ten windows, in milliseconds: how it goes now."""
        return round(median(list(self._windows)[-10:]), 4) if self._windows else None
