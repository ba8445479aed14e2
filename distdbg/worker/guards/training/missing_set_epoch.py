"""Detect a sampler that shuffles by its epoch and keeps its epoch over several passes: the order repeats.

A batch that a script takes to look at, or an evaluation, is no pass. A sampler whose epoch anyone but us has changed is
left alone. A script that names set_epoch may use its data several times before it calls it, and is judged at its end. A
sampler of the script may draw by more than the epoch: there the first batches must be the same.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from distdbg.worker.guards.shared.batches import fingerprint
from distdbg.worker.guards.shared.passes import Pass, PassGuard, samplers_of
from distdbg.worker.user_code import Where, mentioned, users_line

_NAMES = re.compile(r"\.set_epoch\(")
#: Passes at the end of a script that names set_epoch: with fewer it may have had one epoch only.
_PASSES = 3
_MOST = 64


class MissingSetEpoch(PassGuard):
    id = "missing-set-epoch"
    modes = ("off", "warn", "fix", "error")
    costs = "about 10 us for each pass over a loader; up to 1 ms more where a sampler has an order of its own"
    blind = (
        "samplers without the attributes `epoch`, and `shuffle` or `seed`; datasets that shuffle by themselves "
        "(IterableDataset); loaders that are no torch DataLoader; scripts that name set_epoch, before they end; `fix` "
        "comes one pass late where workers fetch ahead, and is for torch's own DistributedSampler"
    )

    def begin(self) -> None:
        super().begin()
        self._waiting: list[_Sampler] = []
        self.listen("pass-begins", self._first_batch)

    def pass_begins(self, now: Pass, iterator: Any) -> bool:
        for sampler in samplers_of(iterator):
            epoch = getattr(sampler, "epoch", None)
            if type(epoch) is int and hasattr(sampler, "set_epoch") and _shuffles(sampler):
                break
        else:
            return False
        of = _Sampler(sampler) if now.before is None else now.before.about.of
        of.changed = of.changed or epoch != of.epoch
        of.epoch = epoch
        now.about = _Order(of, epoch)
        if now.before is None or of.changed:
            return True
        now.where = users_line()
        if of.named is None:
            of.named = mentioned(_NAMES)
        if self.mode == "fix" and not of.own_order and not of.named:
            sampler.set_epoch(epoch + 1)
            of.epoch = epoch + 1
            now.about.repaired = True
            if not getattr(iterator, "_num_workers", 0):  # nothing is drawn yet: this pass is repaired, too
                now.about.epoch = epoch + 1
        return True

    def _first_batch(self, began: tuple[Any, Any]) -> None:
        now = self.now_of(began[0])
        if now is not None and now.about.of.own_order and not now.about.of.changed:
            now.about.fingerprint = fingerprint(began[1])

    def trained(self, now: Pass) -> None:
        """A repair is reported now: where the script only looked at a batch, it may set the epoch itself."""
        order, of = now.about, now.about.of
        of.passes += 1
        if now.before is None or of.changed:
            return
        if order.repaired:
            self.report(now.where, sampler=of.kind, epoch=of.epoch - 1, fixed=True)
        elif order.is_like(now.before.about):
            of.where = now.where
            if not of.named:
                self._report(of)
            elif of not in self._waiting and len(self._waiting) < _MOST:
                self._waiting.append(of)

    def finish(self) -> None:
        super().finish()
        for of in self._waiting:
            if not of.changed and of.passes >= _PASSES:
                self._report(of)

    def _report(self, of: _Sampler) -> None:
        self.report(of.where, f"two passes had the same order, that of epoch {of.epoch}", epoch=of.epoch)


class _Sampler:
    """`changed`: anyone but us has changed the epoch. `named`: the script names set_epoch."""

    def __init__(self, sampler: Any) -> None:
        self.kind, self.epoch = type(sampler).__name__, sampler.epoch
        plain = sys.modules["torch.utils.data.distributed"].DistributedSampler
        self.own_order = getattr(type(sampler), "__iter__", None) is not plain.__iter__
        self.changed = False
        self.named: bool | None = None
        self.passes = 0
        self.where: Where | None = None


class _Order:
    """The order of one pass: the epoch that it was drawn with."""

    def __init__(self, of: _Sampler, epoch: int) -> None:
        self.of, self.epoch = of, epoch
        self.repaired = False
        self.fingerprint: int | None = None

    def is_like(self, other: _Order) -> bool:
        drawn = not self.of.own_order or (self.fingerprint is not None and self.fingerprint == other.fingerprint)
        return drawn and self.epoch == other.epoch


def _shuffles(sampler: Any) -> bool:
    """It says so; or it has a seed beside the epoch, as batch samplers do that always shuffle."""
    said = getattr(sampler, "shuffle", None)
    return said is True or (said is None and type(getattr(sampler, "seed", None)) is int)
