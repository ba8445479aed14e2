"""Report the first batch of a training pass on this rank; the rule compares the ranks.

A batch is recognised by a checksum, and counts once a tensor like one of its own enters the model's forward: a rank may
take its part of a batch that all ranks read, or derive another one from it. Ranks that share a model by tensor or
pipeline parallelism must read the same data, so the fact has the ranks over which the model is data parallel.
"""

from __future__ import annotations

import sys
from typing import Any

from distdbg.worker.guards.shared.batches import Shape, fingerprint, first_input, is_one_of, shapes_of
from distdbg.worker.guards.shared.passes import Pass, PassGuard, samplers_of
from distdbg.worker.user_code import users_line

#: First batches that are looked at, and forwards that may be the one of such a batch: a GAN's first is another model's.
_BATCHES = 24
_FORWARDS = 4


class DataNotSharded(PassGuard):
    id = "data-not-sharded"
    costs = "up to 1 ms for each tensor in the first batch of a pass over a loader, at most 24 times"
    blind = (
        "models without DDP or FSDP, whose ranks may share data on purpose; IterableDataset; batches of fewer than "
        "four different numbers; batches that the loader puts on a device; batches of which no tensor enters the "
        "model in the shape that the loader gave it"
    )

    def begin(self) -> None:
        super().begin()
        self._batches_left, self._forwards_left = _BATCHES, 0
        self.listen("pass-begins", self._first_batch)

    def pass_begins(self, now: Pass, _iterator: Any) -> bool:
        if now.total < 2 or self._batches_left <= 0 or not self.context.distributed():
            return False
        now.where = users_line()
        return True

    def _first_batch(self, began: tuple[Any, Any]) -> None:
        iterator, batch = began
        now = self.now_of(iterator)
        if now is None or self._batches_left <= 0:
            return
        self._batches_left -= 1
        self.unsubscribe("forward")
        found = fingerprint(batch)
        if found is not None:
            now.about = _Batch(found, shapes_of(batch), iterator)
            self._forwards_left = _FORWARDS
            self.listen("forward", self._forward)

    def _forward(self, _module: object) -> None:
        batch: _Batch | None = None if self._now is None else self._now[1].about
        self._forwards_left -= 1
        if batch is None or self._forwards_left <= 0:
            self.unsubscribe("forward")
        if batch is None or not sys.modules["torch"].is_grad_enabled():
            return
        given = first_input()
        if given is not None and is_one_of(tuple(given.shape), batch.shapes):
            batch.enters(given)
            self.unsubscribe("forward")

    def trained(self, now: Pass) -> None:
        ranks, batch = self.context.replicas(), now.about
        if batch is None or not batch.entered or not ranks:
            return
        number = self.reports_at(now.where)
        if number < 3:
            self.report(now.where, "", number, batch=batch.fingerprint, samplers=batch.samplers, items=batch.items,
                     part=batch.part, batches=now.total, among=ranks)  # fmt: skip


class _Batch:
    """The first batch of a pass. `part` is the sampler's rank: data of equal items counts as sharded, too."""

    def __init__(self, found: int, shapes: list[Shape], iterator: Any) -> None:
        self.fingerprint, self.shapes = found, shapes
        self.entered = False
        samplers = list(samplers_of(iterator))
        self.samplers = [type(sampler).__name__ for sampler in samplers]
        of_several = [getattr(s, "rank", None) for s in samplers if getattr(s, "num_replicas", 1) != 1]
        self.part = next((rank for rank in of_several if isinstance(rank, int)), 0)
        try:
            self.items = len(iterator._dataset)
        except Exception:
            self.items = -1

    def enters(self, given: Any) -> None:
        """Values that are readable without waiting for a device must be the same, too."""
        from zlib import crc32

        self.entered = True
        if given.device.type == "cpu":
            self.fingerprint = crc32(f"{self.fingerprint} {fingerprint(given)}".encode())
