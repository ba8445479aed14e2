"""Record the norms of each layer, every ten steps of each optimizer, before it steps (`--watch gradients`).

A line a sample goes to the agent: the norm of the gradient and of the weights, and the share of zeros, by layer. It
needs a few kernels for all tensors and one transfer; on a GPU the figures are read at the next sample, once they have
arrived. Samples are far enough apart to cost at most 1 % of the time, and the distance doubles with each MiB that is
written. Of ranks with the same gradients, as under DDP, the first takes them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from distdbg.worker.context import RankContext
from distdbg.worker.late_figures import LateFigures
from distdbg.worker.models import weak
from distdbg.worker.watch.samples import GradientSample, Layers

_EVERY = 10
#: A sample may cost this part of the time since the one before; its effect on caches costs as much again.
_SHARE = 100
_DOUBLES_AFTER = 1 << 20
_MOST_OPTIMIZERS, _MOST_MODELS = 8, 8
#: A model whose parameters change more often than this is no longer followed.
_MOST_TABLES = 8
_NEVER = 1 << 62
_now, _spent = time.monotonic_ns, time.thread_time_ns


class GradientWatch:
    """One for a rank."""

    def __init__(self, context: RankContext) -> None:
        self._context = context
        self._models: list[Callable[[], Any]] = []
        self._series: dict[int, Series] = {}
        self._unsubscribe = context.bus.subscribe_all(("forward", self.model), ("optimizer", self._optimizer))

    def model(self, model: Any) -> None:
        """The source of the names of layers."""
        if self._models and self._models[-1]() is model:
            return
        known = weak(model)
        if known is not None:
            others = [m for m in self._models if m() not in (None, model)]
            self._models = [*others[-_MOST_MODELS + 1 :], known]

    def finish(self, *, failed: bool) -> None:  # noqa: ARG002
        for series in self._series.values():
            series.deliver()
        self.end()

    def end(self) -> None:
        self._unsubscribe()

    def _optimizer(self, optimizer: Any) -> None:
        series = self._series.get(id(optimizer))
        if series is None or series.of() is not optimizer:
            reference = weak(optimizer)
            if reference is None or len(self._series) >= _MOST_OPTIMIZERS:
                return
            series = self._series[id(optimizer)] = Series(self._context, reference, len(self._series))
        series.turn(optimizer, self._models)


class Series:
    """One optimizer's samples."""

    def __init__(self, context: RankContext, of: Callable[[], Any], number: int) -> None:
        self.of = of
        self._context, self._number = context, number
        self._layers: Layers | None = None
        self._tables = -1
        self._late = LateFigures()
        self._count, self._next, self._every = 0, 1, _EVERY
        self._due = self._written = 0
        self._cost: int | None = None

    def turn(self, optimizer: Any, models: list[Callable[[], Any]]) -> None:
        """It is about to step."""
        self._count += 1
        if self._count < self._next or _now() < self._due:
            return
        self._next = self._count + self._every
        begun = _spent()
        self._take(optimizer, [model for reference in models if (model := reference()) is not None])
        cost = _spent() - begun
        # The first one includes what torch loads then; other processes can slow down any of them.
        self._cost = cost if self._cost is None else min(cost, 2 * self._cost)
        self._due = 0 if self._count == 1 else _now() + _SHARE * self._cost

    def deliver(self) -> None:
        """Send the figures that have arrived."""
        arrived = self._late.take()
        if arrived is not None and self._layers is not None:
            figures, sample = arrived
            line = sample.line(figures)
            if line is None:
                return
            self._context.link.send("gradients", line)
            self._written += 64 + 30 * self._layers.count
            if self._written > _DOUBLES_AFTER:
                self._written, self._every = 0, 2 * self._every

    def _take(self, optimizer: Any, models: list[Any]) -> None:
        self.deliver()
        if self._layers is None or not self._layers.still(optimizer):
            if self._tables + 1 >= _MOST_TABLES:
                self._next = _NEVER
                return
            layers = Layers(optimizer, models)
            if layers.is_copy:
                self._next = _NEVER
                return
            if not self._context.fact("gradient-layers", optimizer=self._number, table=self._tables + 1,
                                      **layers.description()):  # fmt: skip
                return  # the agent is busy: at the next sample
            self._layers, self._tables = layers, self._tables + 1
        head: dict[str, object] = {
            "step": self._context.page.steps() + 1,
            "optimizer": self._number,
            "table": self._tables,
        }
        sample = GradientSample(self._layers, optimizer, head)
        if sample.figures is None or not self._late.send(sample.figures, sample):
            return
        if sample.figures.device.type != "cuda":
            self.deliver()
