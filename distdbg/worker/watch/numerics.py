"""Detect values that are not finite: the loss at each backward, one gradient before each step (`--watch numerics`).

On the CPU the loss is read at once. On a GPU it is copied to the host in the background, and read at a later step; if
it is not finite, the modules of the next forward are watched, and judged if its loss is not finite either. Nothing is
reported before an optimizer has stepped on it: a GradScaler that skips a step is right, and so is an optimizer that
does. After a report the watch ends.
"""

from __future__ import annotations

import sys
from math import isfinite
from types import FrameType
from typing import Any

from distdbg.worker.context import RankContext
from distdbg.worker.hooks.hook_points import roots_of
from distdbg.worker.late_figures import LateNumber
from distdbg.worker.models import inner_of, local_part, parameters_of, weak_or_gone
from distdbg.worker.user_code import Where, is_ignored, users_line
from distdbg.worker.watch import outputs
from distdbg.worker.watch.dump import NonfiniteDump
from distdbg.worker.watch.figures import is_finite, probe
from distdbg.worker.watch.outputs import bad_gradients, bad_weights, origin
from distdbg.worker.watch.root import Saves

#: This is only loaded once torch is, and may not be what loads it.
torch: Any = sys.modules["torch"]
#: Losses in a row that are not finite, without a step: no scaler needs so many to find its scale.
_MOST_SKIPPED = 64
_NO_MODEL = {"made": "unknown", "because": "no model was seen that is surely the one that is trained: "
                                           "distdbg.watch(model) names it"}  # fmt: skip


class NumericsWatch:
    """One for a rank."""

    def __init__(self, context: RankContext, dump: NonfiniteDump | None = None) -> None:
        self._context, self._dump = context, dump
        self._model: Any = lambda: None
        self._hooks: list[Any] = []
        self._pending: tuple[dict[str, object], Where | None] | None = None
        self._held: dict[str, Any] | None = None
        self._skipped = 0
        self._before: dict[int, int] | None = None
        self._armed = self._over = False
        self._loss, self._gradient = LateNumber(), LateNumber()
        self._unsubscribe = context.bus.subscribe_all(
            ("forward", self._forward), ("backward", self._backward), ("optimizer", self._optimizer),
            ("step", self._stepped),
        )  # fmt: skip
        self._saves = Saves(context, self._unhook, self._hook)

    def model(self, model: Any) -> None:
        """The model, where no DDP or FSDP wraps it; None where it is not certain any more."""
        self._unhook()
        self._model = weak_or_gone(model)
        self._hook()
        if self._dump is not None:
            self._dump.model(model)

    def finish(self, *, failed: bool) -> None:
        """The script has ended. An error that ended it may come from a value that is not reported yet."""
        if failed and self._pending is not None:
            self._report(stepped=False, failed=True)
        self.end()

    def end(self) -> None:
        """From here on steps cost nothing."""
        self._over = True
        self._unsubscribe()
        self._saves.end()
        self._unhook()
        outputs.leave()
        if self._dump is not None:
            self._dump.end()

    def _forward(self, model: Any) -> None:
        if self._model() is not model:
            self.model(model)
        else:
            self._hook()

    def _hook(self) -> None:
        """On a GPU only after a value that was not finite: before that no output is read."""
        model = None if self._hooks or self._over else self._model()
        first = next(model.parameters(), None) if model is not None else None
        if model is not None and (self._armed or first is None or first.device.type == "cpu"):
            self._hooks = outputs.listen_to(model)

    def _unhook(self) -> None:
        hooks, self._hooks = self._hooks, []
        for hook in hooks:
            hook.remove()

    def _backward(self, frame: FrameType) -> None:
        root = next((r for r in roots_of(frame) if isinstance(r, torch.Tensor) and r.numel() == 1), None)
        if root is not None and root.is_floating_point():
            self._look_at(root)
        outputs.forget()

    def _look_at(self, root: Any) -> None:
        if root.device.type == "cpu" or self._armed:
            value = float(root.detach())
        else:
            value = self._loss.swap(root)
            if not isfinite(value):
                self._arm()
            return
        if isfinite(value):
            self._skipped, self._pending = 0, None
            if self._armed:  # a false alarm, as a scaler's first losses are: on a GPU no hook stays
                self._armed = False
                self._unhook()
                self._hook()
        elif self._skipped == 0:
            self._skipped = 1
            self._pending = self._judge(value), users_line()
            self._hold()
        else:
            self._skipped += 1
            if self._skipped >= _MOST_SKIPPED:
                self._report(stepped=False)

    def _arm(self) -> None:
        self._armed = True
        self._hook()

    def _judge(self, value: float) -> dict[str, object]:
        """Read the outputs of all modules: once, when a value is certainly not finite."""
        model = self._model()
        fields: dict[str, object] = {"at": self._context.page.steps() + 1, "loss": str(value)}
        if model is None:
            return {**fields, **_NO_MODEL}
        return {**fields, "late": self._armed, **origin(outputs.made()), **bad_weights(model)}

    def _optimizer(self, optimizer: Any) -> None:
        """About to step; a scaler whose optimizers skip steps themselves gives them `found_inf`."""
        if getattr(optimizer, "found_inf", None) is not None:
            self._pending = None
            return
        gradient = _probe(optimizer)
        if gradient is None:
            return
        if gradient.device.type != "cpu":
            if not isfinite(self._gradient.swap(gradient)):
                self._arm()
            bad = self._pending is not None and not is_finite(gradient)
        else:
            bad = not isfinite(float(gradient.sum())) and not is_finite(gradient)
        if bad:
            if self._pending is None:
                self._gradients_are_bad()
            self._save(optimizer)
            self._before = _bad_ones(optimizer)
        elif self._pending is not None:
            self._report(stepped=False, optimizer=optimizer)

    def _hold(self) -> None:
        """Keep the inputs of the judged forward until the report, or a false alarm."""
        self._held = None if self._dump is None else self._dump.last

    def _gradients_are_bad(self) -> None:
        model = self._model()
        fields: dict[str, object] = {"at": self._context.page.steps() + 1}
        if model is None:
            fields |= _NO_MODEL
        else:
            order = [name for name, _ in inner_of(model).named_modules()]
            fields |= {**bad_gradients(model, order), **bad_weights(model)}
        self._pending = fields, users_line()
        self._hold()

    def _stepped(self, optimizer: Any) -> None:
        before, self._before = self._before, None
        if before is not None and self._pending is not None:
            stepped = _have_changed(optimizer, before)
            if stepped or "dump" in self._pending[0]:
                self._report(stepped=stepped, optimizer=optimizer)
            elif not self._skipped:
                self._pending = None  # the optimizer skips such steps; the count of bad losses continues
        outputs.forget()
        if self._dump is not None:
            self._held = None
            self._dump.last = None

    def _report(self, *, stepped: bool, optimizer: object = None, failed: bool = False) -> None:
        self._save(optimizer, failed=failed)
        if self._pending is None:
            return
        (fields, where), self._pending = self._pending, None
        if not is_ignored("non-finite", where):
            self._context.fact("guard", guard="non-finite", mode="warn", step=fields.pop("at"), where=where,
                               stepped=stepped, **fields)  # fmt: skip
        self.end()

    def _save(self, optimizer: object, *, failed: bool = False) -> None:
        """Before the step, if one follows."""
        if self._pending is None or self._dump is None or "dump" in self._pending[0]:
            return
        fields, where = self._pending
        if not is_ignored("non-finite", where):
            self._unhook()
            named = type(optimizer).__name__ if optimizer is not None else ""
            fields["dump"] = self._dump.write(self._held, self._model(), fields, named, failed=failed)


def _probe(optimizer: Any) -> Any:
    """A part of the first parameter's gradient. A value that is not finite spreads through the rest of the
    backward, and so reaches it."""
    gradients = (p.grad for p in parameters_of(optimizer))
    return next((probe(one) for one in gradients if one is not None and not one.is_sparse), None)


def _bad_ones(optimizer: Any) -> dict[int, int]:
    """id of each parameter whose gradient is not finite -> its version."""
    dense = (p for p in parameters_of(optimizer) if p.grad is not None and not p.grad.is_sparse)
    return {id(p): local_part(p)._version for p in dense if not is_finite(p.grad)}


def _have_changed(optimizer: Any, before: dict[int, int]) -> bool:
    """A change through `.data` changes no version: then the weights themselves show it."""
    bad = [p for p in parameters_of(optimizer) if id(p) in before]
    return any(local_part(p)._version != before[id(p)] for p in bad) or not all(map(is_finite, bad))
