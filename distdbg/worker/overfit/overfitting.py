"""Repeat the batch, read the loss, check the parameters, and end the script after the requested steps.

Each rank repeats its own first batch and reads its own loss. Steps are those of the optimizer that steps first; all
ranks of a job make the same number of them, so they all end after the same one.
"""

from __future__ import annotations

from types import FrameType
from typing import Any

from distdbg.worker.context import RankContext
from distdbg.worker.losses import Losses
from distdbg.worker.overfit.parameters import Parameters
from distdbg.worker.overfit.repeating import Repeating

#: The loss is read at the first and the last of them, and at so many between: reading waits for a device.
_ENDS, _BETWEEN = 10, 50


class Overfitting:
    """One for a rank. `finish` where the script ends by itself."""

    def __init__(self, context: RankContext, steps: int) -> None:
        self._context = context
        self._wanted, self._steps = steps, 0
        self._first: int | None = None
        self._rates: list[float] = []
        self._repeating = Repeating(context.bus)
        self._losses, self._parameters = Losses(), Parameters()
        self._reported = False
        self._unsubscribe = context.bus.subscribe_all(
            ("backward", self._backward), ("optimizer", self._optimizer), ("step", self._stepped)
        )

    def finish(self, *, failed: bool) -> None:
        """The script has ended. After a failure its error is reported, and nothing else."""
        self._unsubscribe()
        if not failed:
            self._report(ended="by itself")

    def _backward(self, frame: FrameType) -> None:
        self._repeating.backward()
        self._losses.add(frame)

    def _optimizer(self, optimizer: Any) -> None:
        self._parameters.look(optimizer)
        if self._first is None:
            self._first = id(optimizer)
        if id(optimizer) == self._first:
            self._rates.append(max((float(group.get("lr") or 0.0) for group in optimizer.param_groups), default=0.0))

    def _stepped(self, optimizer: object) -> None:
        if id(optimizer) != self._first:
            return
        self._steps += 1
        step, wanted = self._steps, self._wanted
        if step <= _ENDS or step > wanted - _ENDS or step % max(1, wanted // _BETWEEN) == 0:
            self._losses.read(step)
        else:
            self._losses.forget()
        if step >= wanted:
            self._report(ended="as asked")
            raise SystemExit(0)

    def _report(self, *, ended: str) -> None:
        if self._reported:
            return
        self._reported = True
        self._context.link.send("fact", {
            "kind": "guard", "guard": "overfit", "mode": "warn", "step": self._steps, "where": None, "ended": ended,
            "wanted": self._wanted, "steps": self._steps, "losses": self._losses.series,
            "not_scalar": self._losses.not_scalar, "loaders": self._repeating.loaders,
            "repeated": self._repeating.repeated, "because": self._repeating.failed,
            "rates": self._rates[:1] + self._rates[-1:], "highest_rate": max(self._rates, default=0.0),
            **self._parameters.summary(),
        }, last_words=True)  # fmt: skip
