"""Look at the losses of a few steps, and at the weights: are they finite, and does the loss change?"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite, isnan
from types import FrameType
from typing import Any

from distdbg.worker.guards.shared.base import Guard, script_failed
from distdbg.worker.hooks.hook_points import roots_of
from distdbg.worker.late_figures import LateFigures, LateNorms, can_be_read_later
from distdbg.worker.models import is_measured, parameters_of, weak_or_gone
from distdbg.worker.user_code import Where, users_line


def _loss_of(frame: FrameType) -> Any:
    """The scalar that a backward begins from, given its event's subject; else None."""
    root = next((r for r in roots_of(frame) if isinstance(r, sys.modules["torch"].Tensor)), None)
    is_loss = root is not None and frame.f_code.co_name != "grad" and root.numel() == 1 and root.is_floating_point()
    return root if is_loss else None


def _stack(losses: list[Any]) -> Any:
    return sys.modules["torch"].stack([loss.reshape(()).double() for loss in losses])


#: Losses of a window that are kept; with fewer than _FEWEST_ALIKE nothing is reported.
_MOST_ALIKE, _FEWEST_ALIKE = 64, 9


class LossNeverChanges(Guard):
    """Detect a loss that is the same number, to its last bit, at every backward of every window.

    Batches differ, and weights change: the loss then depends on neither. It is told after the second window, or at the
    end of the script. A loss of half precision has too few digits to tell."""

    id = "loss-never-changes"
    most = 1
    costs = "about 10 us for each of the steps 2 to 11; more steps are only looked at while the loss is the same"
    blind = "losses from several lines; half precision; backwards through `autograd.grad`, or inside a CUDA graph"

    def begin(self) -> None:
        self._late = LateFigures()
        self._losses: list[Any] = []
        self._where: Where | None = None
        self._value: float | None = None
        self._times = 0

    def window(self) -> None:
        self._judge(last=False)
        self._losses.clear()
        self.listen_in_window(backward=self._backward)

    def _backward(self, frame: FrameType) -> None:
        loss, where = _loss_of(frame), users_line()
        if loss is None or loss.dtype.itemsize < 4 or where is None:
            return
        if (self._where or where) != where:
            self._end()
        elif len(self._losses) < _MOST_ALIKE:
            self._where = where
            self._losses.append(loss.detach())

    def window_ends(self) -> None:
        losses, self._losses = self._losses, []
        if len(losses) < _FEWEST_ALIKE or losses[0].device.type not in ("cpu", "cuda"):
            self._end()
        elif can_be_read_later(losses[0]):
            self._late.send(_stack(losses), self.windows)
            self._judge(last=False)

    def finish(self) -> None:
        self._judge(last=True)
        if self._times and not script_failed():
            self._tell()

    def _judge(self, *, last: bool) -> None:
        if (arrived := self._late.take(last=last)) is None:
            return
        values, _ = arrived
        self._value = values[0] if self._value is None else self._value
        if any(value != self._value for value in values):  # of NaN, too, which is another guard's
            self._end()
            return
        self._times += len(values)
        if self.windows > 1:
            self._tell()

    def _tell(self) -> None:
        if self._where is not None:
            self.report(self._where, value=self._value, times=self._times)

    def _end(self) -> None:
        """From here on no window costs anything."""
        self.most_windows, self._times = 0, 0
        self._losses.clear()
        self.unsubscribe()


#: Losses of one look; two, because a script may have two losses in turn.
_LOSSES_A_LOOK = 2
#: Losses in a row. A scaler of gradients begins with an infinite loss where its factor is too large, and halves it each
#: time: from 2^32 it takes 33. NaN does not come from the factor.
_LOSSES_KEPT, _FEWEST_BAD = 48, 8


@dataclass(frozen=True, slots=True)
class BadLosses:
    """So many losses of one line in a row that are not finite, the last of them `value`. `stepped`: the optimizer has
    stepped since the first."""

    where: Where
    count: int
    value: float
    stepped: bool


class LossProbe:
    """Detect a training whose losses stay NaN or infinite: the scalars that a backward begins from.

    Few losses are looked at. Only if one is not finite, all that follow are kept, until there are enough to judge.

    Call `look` now and then, with `add` at each backward while it listens: `listen(True)` and `listen(False)` begin and
    end that. `found` is set once the losses of a line stay bad; nothing costs anything then."""

    def __init__(self, listen: Callable[[bool], None], steps: Callable[[], int]) -> None:
        self._listen = listen
        self._steps = steps
        self._late = LateFigures()
        self._wanted = _LOSSES_A_LOOK
        self._kept: list[tuple[Where | None, Any]] = []
        self._began = 0
        self.found: BadLosses | None = None

    def look(self) -> None:
        self._judge(last=False)
        if self.found is None and not self._kept and not self._late.on_its_way:
            self._began = self._steps()
            self._listen(True)

    def add(self, frame: FrameType) -> None:
        loss = _loss_of(frame)
        if loss is None or not can_be_read_later(loss):
            self._end()
            return
        self._kept.append((users_line() if self._wanted > _LOSSES_A_LOOK else None, loss.detach()))
        if len(self._kept) >= self._wanted:
            self._send()
            self._judge(last=False)
            if self._wanted == _LOSSES_A_LOOK or self._late.on_its_way:
                self._end()

    def finish(self) -> None:
        """The script has ended: what has been kept so far is judged."""
        self._judge(last=True)
        if self.found is None and len(self._kept) >= _FEWEST_BAD:
            self._send()
            self._judge(last=True)
        self._end()

    def _end(self) -> None:
        self._kept.clear()
        self._listen(False)

    def _send(self) -> None:
        kept, self._kept = self._kept, []
        self._late.send(_stack([loss for _, loss in kept]), ([line for line, _ in kept], self._steps() > self._began))

    def _judge(self, *, last: bool) -> None:
        arrived = self._late.take(last=last)
        if arrived is None:
            return
        values, (lines, stepped) = arrived
        if None in lines:
            self._wanted = _LOSSES_A_LOOK if all(map(isfinite, values)) else _LOSSES_KEPT
            self._began = self._steps()
            return
        self._wanted = _LOSSES_A_LOOK
        for line in lines:
            own = [value for at, value in zip(lines, values, strict=True) if at == line]
            enough = len(own) >= _FEWEST_BAD and (all(map(isnan, own)) or len(values) >= _LOSSES_KEPT)
            if enough and not any(map(isfinite, own)):
                self.found = BadLosses(line, len(own), own[-1], stepped)
                return


class NonFinite(Guard):
    """Report weights that are not finite, and losses that stay so though the weights are finite.

    A loss that is NaN makes all gradients NaN, and a step on them the weights: from there on nothing is learnt, and no
    error is raised. What a scaler of gradients or the script skips never reaches the weights; nothing is learnt where
    it skips all."""

    id = "non-finite"
    most = 1
    costs = (
        "a pass over eight parameters at the steps 11, 22, 44 and so on, then each thousand, and at the end; two "
        "losses are read after the backwards 1, 2, 4 and so on, then after each thousand"
    )
    blind = "where it was made: `--watch numerics` names the module and the step"

    def begin(self) -> None:
        self._norms = LateNorms()
        self._optimizer: Any = lambda: None
        self._where: Where | None = None
        self._losses = LossProbe(self._listen_to_losses, self.page.steps)

    def look_at_loss(self) -> None:
        self._losses.look()
        self._judge_losses()

    def _listen_to_losses(self, on: bool) -> None:
        if on:
            self.listen("backward", self._loss)
        else:
            self.unsubscribe("backward", self._loss)

    def _loss(self, frame: FrameType) -> None:
        self._losses.add(frame)
        self._judge_losses()

    def _judge_losses(self, *, last: bool = False) -> None:
        """Where the optimizer steps, the weights may be what is wrong: these are looked at first."""
        found = self._losses.found
        if found is not None and (last or not found.stepped):
            self.report(found.where, made="losses", loss=str(found.value), losses=found.count, masked=found.stepped)

    def window(self) -> None:
        self.listen_in_window(step=self._stepped, backward=self._backward)

    def _stepped(self, optimizer: Any) -> None:
        self._optimizer = weak_or_gone(optimizer)
        self.unsubscribe("step")

    def _backward(self, _frame: object) -> None:
        self._where = users_line()
        self.unsubscribe("backward", self._backward)

    def look(self) -> None:
        self._judge(last=False)
        optimizer = self._optimizer()
        own = [p for p in parameters_of(optimizer) if is_measured(p)] if optimizer is not None else []
        self._norms.measure(own[:: len(own) // 8 + 1], self.page.steps())
        self._judge(last=self.context.ended)

    def finish(self) -> None:
        if not script_failed():
            self.look()
            self._losses.finish()
            self._judge_losses(last=True)

    def _judge(self, *, last: bool) -> None:
        if (arrived := self._norms.take(last=last)) is None:
            return
        norms, step = arrived
        bad = sum(not isfinite(norm) for norm in norms)
        if bad:
            self.report(self._where, made="weights", at=step, bad_weights=bad, weights=len(norms), stepped=True)
