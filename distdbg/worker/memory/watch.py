"""Record the memory of some steps: a line a step, with a figure for each phase.

The figure of a phase is taken at its end: where the backward begins, the forward is over. The time between a step and
the next backward is "forward", with the loader's batch in it. A line is at least a hundred times its cost after the one
before, and lines become rarer as the job continues, so they cost at most 1 % and a month of them stays small.
"""

from __future__ import annotations

import os
import time

from distdbg.worker.context import RankContext
from distdbg.worker.memory import figures
from distdbg.worker.memory.census import ContainerCensus
from distdbg.worker.memory.snapshots import BACKWARD, FORWARD, OPTIMIZER, History, SnapshotWriter

_now, _spent = time.monotonic_ns, time.thread_time_ns
#: A line may cost this part of the time since the line before; PSS and its like this part of theirs.
_SHARE, _SLOW_SHARE = 100, 1000
_SLOW_EVERY_NS = 1_000_000_000
#: After so many lines' time the distance of lines grows with the age of the job.
_LINES = 1000


def start(context: RankContext) -> MemoryWatch | None:
    """Once torch is imported; None without a request. The launch sets `on`, and the steps of snapshots."""
    if os.environ.get("DISTDBG_MEMORY") != "on":
        return None
    return MemoryWatch(context, read_steps(os.environ.get("DISTDBG_MEMORY_STEPS", "")))


def read_steps(text: str) -> range:
    """`10:12` as 10, 11, 12; `10` as 10. Raises ValueError for anything else but nothing."""
    first, _, last = text.partition(":")
    return range(int(first), int(last or first) + 1) if text else range(0)


class MemoryWatch:
    """`steps` are those at whose end a snapshot is taken. Raises only from the constructor."""

    def __init__(self, context: RankContext, steps: range) -> None:
        self._context = context
        self._page = context.page
        self._steps = steps
        self._started = self._slow_due = _now()
        self._due = 0
        self._on = True
        self._cost = 0
        self._epochs = 0
        self._phases: dict[str, dict[str, int]] = {}
        self.history = History(context)
        self.snapshots = SnapshotWriter(context, self.history)
        self._census = ContainerCensus(context)
        bus = context.bus
        bus.subscribe("backward", self._forward_ends)
        bus.subscribe("optimizer", self._backward_ends)
        bus.subscribe("step", self._step_ends)
        bus.subscribe("data-end", self._epoch_ends)
        self.history.begin(self.snapshots.ran_out)

    def _forward_ends(self, _frame: object) -> None:
        self.history.mark(self._page.steps() + 1, BACKWARD)
        if self._on:
            self._note("forward")

    def _backward_ends(self, _optimizer: object) -> None:
        self.history.mark(self._page.steps() + 1, OPTIMIZER)
        if self._on:
            self._note("backward")

    def _step_ends(self, _optimizer: object) -> None:
        step = self._page.steps()
        self.history.mark(step + 1, FORWARD)
        if self._on:
            self._note("optimizer")
            self._line(step=step)
        else:
            self._on = _now() >= self._due
        self._census.at(step)
        if step in self._steps:
            self.snapshots.take("step")

    def _epoch_ends(self, _iterator: object) -> None:
        """The heartbeat page counts before, and knows whether it was an epoch: a validation is none."""
        before, self._epochs = self._epochs, self._page.epochs()
        self._census.epochs = self._epochs
        if self._epochs > before and _now() >= self._due:
            self._note("epoch")
            self._line(step=self._page.steps())

    def script_ends(self, error: BaseException | None) -> None:
        """A script without an optimizer has no steps: its line, and the snapshot asked for, are of the whole run."""
        if error is not None:
            self.snapshots.failed(error)
        if self._page.steps() == 0:
            self._note("script")
            self._line(step=0)
            if self._steps and not self.snapshots.taken:
                self.snapshots.take("end")

    def _note(self, phase: str) -> None:
        """With gradient accumulation a phase ends several times in a step: the highest counts."""
        begun = _spent()
        measured, before = figures.quick(), self._phases.get(phase)
        if before is not None:
            measured = {name: max(value, before.get(name, 0)) for name, value in measured.items()}
        self._phases[phase] = measured
        self._cost += _spent() - begun

    def _line(self, **where: int) -> None:
        now, begun = _now(), _spent()
        more: dict[str, object] = {}
        if now >= self._slow_due:
            more = {**figures.slow()}
            spent, begun = _spent() - begun, _spent()
            self._slow_due = now + max(_SLOW_EVERY_NS, _SLOW_SHARE * spent)
        phases, self._phases = self._phases, {}
        epochs = self._epochs if self._page.batches() else -1  # -1: no loader, and so no end of an epoch
        self._context.link.send("memory", {**where, "epochs": epochs, **more, "phases": phases})
        cost, self._cost = self._cost + _spent() - begun, 0
        self._due = now + max(_SHARE * cost, (now - self._started) // _LINES)
        self._on = False
