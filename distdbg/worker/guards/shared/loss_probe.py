"""Detect a training whose losses stay NaN or infinite: the scalars that a backward begins from.

Few losses are looked at. Only where one is not finite, all that follow are kept, until there are enough to judge.
Values on a GPU are copied in the background, and read at a later look.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite, isnan
from types import FrameType
from typing import Any

from distdbg.worker.hooks.hook_points import roots_of
from distdbg.worker.late_figures import LateFigures
from distdbg.worker.user_code import Where, users_line

#: Losses of one look; two, because a script may have two losses in turn.
_FEW = 2
#: Losses in a row. A scaler of gradients begins with an infinite loss where its factor is too large, and halves it each
#: time: from 2^32 it takes 33. NaN does not come from the factor.
_MOST, _FEWEST = 48, 8
_AT_THE_END_S = 0.2


@dataclass(frozen=True, slots=True)
class BadLosses:
    """So many losses of one line in a row that are not finite, the last of them `value`. `stepped`: the optimizer has
    stepped since the first."""

    where: Where
    count: int
    value: float
    stepped: bool


class LossProbe:
    """`look` now and then, with `add` at each backward while it listens: `listen(True)` and `listen(False)` begin and
    end that. `found` is set once the losses of a line stay bad; nothing costs anything then."""

    def __init__(self, listen: Callable[[bool], None], steps: Callable[[], int]) -> None:
        self._listen = listen
        self._steps = steps
        self._late = LateFigures()
        self._wanted = _FEW
        self._kept: list[tuple[Where | None, Any]] = []
        self._began = 0
        self.found: BadLosses | None = None

    def look(self) -> None:
        self._judge(last=False)
        if self.found is None and not self._kept and not self._late.on_its_way:
            self._began = self._steps()
            self._listen(True)

    def add(self, frame: FrameType) -> None:
        torch = sys.modules["torch"]
        root = next((r for r in roots_of(frame) if isinstance(r, torch.Tensor)), None)
        if frame.f_code.co_name == "grad" or root is None or not _is_loss(root):
            self._end()
            return
        self._kept.append((users_line() if self._wanted > _FEW else None, root.detach()))
        if len(self._kept) >= self._wanted:
            self._send()
            self._judge(last=False)
            if self._wanted == _FEW or self._late.on_its_way:
                self._end()

    def finish(self) -> None:
        """The script has ended: what has been kept so far is judged."""
        self._judge(last=True)
        if self.found is None and len(self._kept) >= _FEWEST:
            self._send()
            self._judge(last=True)
        self._end()

    def _end(self) -> None:
        self._kept.clear()
        self._listen(False)

    def _send(self) -> None:
        kept, self._kept = self._kept, []
        values = sys.modules["torch"].stack([root.reshape(()).double() for _, root in kept])
        self._late.send(values, ([line for line, _ in kept], self._steps() > self._began))

    def _judge(self, *, last: bool) -> None:
        arrived = self._late.wait(_AT_THE_END_S) if last else self._late.take()
        if arrived is None:
            return
        values, (lines, stepped) = arrived
        if None in lines:
            self._wanted = _FEW if all(map(isfinite, values)) else _MOST
            self._began = self._steps()
            return
        self._wanted = _FEW
        for line in lines:
            own = [value for at, value in zip(lines, values, strict=True) if at == line]
            enough = len(own) >= _FEWEST and (all(map(isnan, own)) or len(values) >= _MOST)
            if enough and not any(map(isfinite, own)):
                self.found = BadLosses(line, len(own), own[-1], stepped)
                return


def _is_loss(root: Any) -> bool:
    """A scalar that can be read later: not while a CUDA graph is captured."""
    if root.numel() != 1 or not root.is_floating_point() or root.device.type not in ("cpu", "cuda"):
        return False
    return root.device.type == "cpu" or not sys.modules["torch"].cuda.is_current_stream_capturing()
