"""Repeat the first batch of the training for N steps, then end the script (`--overfit-batch N`).

Loaded only on request. It changes the training data, and nothing else: no collective, no random number. Each rank
repeats its own first batch and reads its own loss. Steps are those of the optimizer that steps first; all ranks of a
job make the same number of them, so they all end after the same one.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from distdbg.worker.context import RankContext
from distdbg.worker.hooks.bus import Bus
from distdbg.worker.losses import Losses
from distdbg.worker.memory.live import instances_of, roots
from distdbg.worker.models import parameters_of, remove_model_prefix, sampler_of

#: Set by the launch: the number of steps.
VARIABLE = "DISTDBG_OVERFIT_BATCH"
#: The loss is read at the first and the last of them, and at so many between: reading waits for a device.
_ENDS, _BETWEEN = 10, 50


def start(context: RankContext) -> Overfitting | None:
    """Once torch is imported; None without a request."""
    steps = os.environ.get(VARIABLE, "")
    return Overfitting(context, int(steps)) if steps.isdecimal() else None


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


_MOST_NAMES = 10


class Parameters:
    """Detect which parameters get a gradient, and which an optimizer has, by name where a module is found.

    It looks at each step of each optimizer, before it: gradients are there then."""

    def __init__(self) -> None:
        self._roots: list[Any] | None = None
        self._owned: dict[int, Any] = {}
        self._got: set[int] = set()

    def look(self, optimizer: Any) -> None:
        if self._roots is None:
            self._roots = roots(instances_of(gc.get_objects(), sys.modules["torch"].nn.Module))
        for parameter in parameters_of(optimizer):
            self._owned[id(parameter)] = parameter
        held = (p for root in self._roots for p in root.parameters())
        self._got.update(id(p) for p in (*self._owned.values(), *held) if p.grad is not None)

    def summary(self) -> dict[str, object]:
        """Without modules that are not trained (a teacher, an average of weights)."""
        names = {id(p): remove_model_prefix(name) for root in self._roots or () for name, p in root.named_parameters()}
        known = self._owned.keys() | self._got
        models = [root for root in self._roots or () if any(id(p) in known for p in root.parameters())]
        trained = [p for root in models for p in root.parameters()]
        free = [p for p in trained if p.requires_grad and id(p) not in self._owned]
        owned = list(self._owned.values())
        groups = {
            "without_grad": [p for p in owned if p.requires_grad and id(p) not in self._got],
            "not_owned": [p for p in free if id(p) in self._got],
            "not_owned_without_grad": [p for p in free if id(p) not in self._got],
            "frozen": [p for p in owned if not p.requires_grad],
        }
        dropouts = [module for root in models for module in root.modules()
                    if type(module).__name__.startswith(("Dropout", "AlphaDropout"))]  # fmt: skip
        noisy = sum(module.training and bool(module.p) for module in dropouts)  # the loss is, though the batch is not
        fields: dict[str, object] = {"owned": len(owned), "dropout": noisy}
        for word, found in groups.items():
            if found:
                shown = [names.get(id(p), f"a tensor {list(p.shape)}") for p in found[:_MOST_NAMES]]
                fields[word] = {"count": len(found), "names": shown}
        return fields


#: Batches without a backward that show that a loader is not the training's.
_NOT_TRAINING = 64


class Repeating:
    """Make a DataLoader repeat one batch.

    The batch is copied before the script gets it, and again each time, so changes of the script do not reach the next
    one. The loaders are those that had given a batch when the first backward began, with gradients on: not the
    validation before it. A loader that turns out not to be the training's (batches, but no backward) continues as
    before. It listens until the first backward, then only for new passes over a loader. `repeated` counts batches that
    were not loaded; `failed` is why there is none."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        #: by its sampler, which all iterators of a DataLoader share: the iterator, and its first batch
        self._given: dict[int, tuple[Any, Callable[[], Any], Any]] = {}
        self._batches: dict[int, tuple[Any, Any]] = {}
        self._unused = self.repeated = 0
        self.loaders = 0
        self.failed = ""
        bus.subscribe("pass-begins", self._first)
        bus.subscribe("data-end", self._ends)
        bus.subscribe("pass", self._anew)

    def backward(self) -> None:
        """A backward begins: the loaders that have given a batch are the training's."""
        self._unused = 0
        if self._batches or not self._given:
            return
        given, self._given = self._given, {}
        self._bus.unsubscribe("pass-begins", self._first)
        self._bus.unsubscribe("data-end", self._ends)
        for key, (sampler, reference, batch) in given.items():
            self._batches[key] = sampler, batch  # kept alive, so that no other sampler gets its id
            iterator = reference()
            if iterator is not None:
                self._hold(iterator, batch)
        self.loaders = len(self._batches)

    def _first(self, began: tuple[Any, Any]) -> None:
        iterator, batch = began
        if not sys.modules["torch"].is_grad_enabled():
            return
        if not hasattr(iterator, "_next_data") or sampler_of(iterator) is None:
            self.failed = f"a {type(iterator).__name__} loads in a way that is not known"
            return
        from _weakref import ref

        sampler = sampler_of(iterator)
        self._given.setdefault(id(sampler), (sampler, ref(iterator), _copy(batch)))

    def _ends(self, iterator: Any) -> None:
        """A pass that ends before any backward is no training."""
        self._given.pop(id(sampler_of(iterator)), None)

    def _anew(self, iterator: Any) -> None:
        """Of the same loader, or of another one."""
        found = self._batches.get(id(sampler_of(iterator)))
        if found is not None and sys.modules["torch"].is_grad_enabled():
            self._hold(iterator, found[1])

    def _hold(self, iterator: Any, batch: Any) -> None:
        """Replace the method that loads: `__next__` stays torch's, and so do its hooks."""

        def again() -> Any:
            self._unused += 1
            if self._unused > _NOT_TRAINING:
                self._batches.clear()
                del iterator._next_data
                return iterator._next_data()
            self.repeated += 1
            iterator._num_yielded = 0  # it neither ends nor complains that it gives more than it has
            return _copy(batch)

        iterator._next_data = again
        iterator._distdbg_batches = -1


def _copy(batch: Any) -> Any:
    """A batch that cannot be copied is repeated as it is."""
    from copy import deepcopy

    try:
        return deepcopy(batch)
    except Exception:
        return batch
