"""Detect what is wrong with the order of the data: the same on each rank, or in each pass."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import islice
from math import prod
from typing import Any

from distdbg.evidence.frames import module_path
from distdbg.worker.guards.shared.passes import LoaderPass, PassGuard, samplers_of
from distdbg.worker.user_code import Where, frames_above, mentioned, users_line

#: First batches that are looked at, and forwards that may be the one of such a batch: a GAN's first is another model's.
_BATCHES = 24
_FORWARDS = 4


class DataNotSharded(PassGuard):
    """Report the first batch of a training pass on this rank; the rule compares the ranks.

    A batch is recognised by a checksum, and counts once a tensor like one of its own enters the model's forward: a rank
    may take its part of a batch that all ranks read, or derive another one from it. Ranks that share a model by tensor
    or pipeline parallelism must read the same data, so the fact has the ranks over which the model is data parallel."""

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

    def pass_begins(self, now: LoaderPass, _iterator: Any) -> bool:
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
            now.about = _Batch(found, batch, iterator)
            self._forwards_left = _FORWARDS
            self.listen("forward", self._forward)

    def _forward(self, _module: object) -> None:
        batch: _Batch | None = None if self._now is None else self._now.about
        self._forwards_left -= 1
        if batch is None or self._forwards_left <= 0:
            self.unsubscribe("forward")
        if batch is None or not sys.modules["torch"].is_grad_enabled():
            return
        given = first_input()
        if given is not None and is_one_of(tuple(given.shape), batch.shapes):
            batch.enters(given)
            self.unsubscribe("forward")

    def trained(self, now: LoaderPass) -> None:
        ranks, batch = self.context.replicas(), now.about
        if batch is None or not batch.entered or not ranks:
            return
        number = self.reports_at(now.where)
        if number < 3:
            self.report(now.where, "", number, batch=batch.fingerprint, samplers=batch.samplers, items=batch.items,
                     part=batch.part, batches=now.total, among=ranks)  # fmt: skip


class _Batch:
    """The first batch of a pass. `part` is the sampler's rank: data of equal items counts as sharded, too."""

    def __init__(self, found: int, batch: Any, iterator: Any) -> None:
        tensor = sys.modules["torch"].Tensor
        self.fingerprint = found
        self.shapes: list[Shape] = [tuple(thing.shape) for thing in _things(batch) if isinstance(thing, tensor)]
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


_NAMES = re.compile(r"\.set_epoch\(")
#: Passes at the end of a script that names set_epoch: with fewer it may have had one epoch only.
_FEWEST_PASSES = 3
_MOST_WAITING = 64


class MissingSetEpoch(PassGuard):
    """Detect a sampler that shuffles by its epoch and keeps its epoch over several passes: the order repeats.

    A batch that a script takes to look at, or an evaluation, is no pass. A sampler whose epoch anyone but us has
    changed is left alone. A script that names set_epoch may use its data several times before it calls it, and is
    judged at its end. A sampler of the script may draw by more than the epoch: there the first batches must be the
    same."""

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
        self._waiting: list[_EpochSampler] = []
        self.listen("pass-begins", self._first_batch)

    def pass_begins(self, now: LoaderPass, iterator: Any) -> bool:
        for sampler in samplers_of(iterator):
            epoch = getattr(sampler, "epoch", None)
            if type(epoch) is int and hasattr(sampler, "set_epoch") and _shuffles(sampler):
                break
        else:
            return False
        of = _EpochSampler(sampler) if now.before is None else now.before.about.of
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

    def trained(self, now: LoaderPass) -> None:
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
            elif of not in self._waiting and len(self._waiting) < _MOST_WAITING:
                self._waiting.append(of)

    def finish(self) -> None:
        super().finish()
        for of in self._waiting:
            if not of.changed and of.passes >= _FEWEST_PASSES:
                self._report(of)

    def _report(self, of: _EpochSampler) -> None:
        self.report(of.where, f"two passes had the same order, that of epoch {of.epoch}", epoch=of.epoch)


class _EpochSampler:
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

    def __init__(self, of: _EpochSampler, epoch: int) -> None:
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


Shape = tuple[int, ...]

#: So many things of a batch are looked at, and so many numbers of each tensor: all over it, since padding, borders and
#: prompts are the same at the head of every batch.
_THINGS = 8
_NUMBERS = 4096
_LEVELS = 8
_FRAMES = 8
#: Files below sys.path -> the function that gets what a forward was given, and its variables for that.
_FORWARD_FUNCTIONS = {
    "torch/nn/parallel/distributed.py": ("forward", "inputs"),
    "torch/distributed/fsdp/fully_sharded_data_parallel.py": ("forward", "args"),
    "torch/distributed/fsdp/_fully_shard/_fsdp_state.py": ("_pre_forward", "args"),
}


def fingerprint(batch: Any) -> int | None:
    """A checksum; None with fewer than four different numbers and words. Nothing is read from a device."""
    from array import array
    from zlib import crc32

    checksum, different = 0, set[object]()
    for thing in _things(batch):
        if isinstance(thing, sys.modules["torch"].Tensor):
            numbers = _numbers(thing)
            checksum = crc32(array("d", numbers).tobytes(), checksum)  # repr() takes ten times as long
            different.update(numbers)
        else:
            checksum = crc32(repr(thing)[:200].encode("utf-8", "replace"), checksum)
            different.add(thing)
    return checksum if len(different) >= 4 else None


def first_input() -> Any:
    """The first tensor argument of the forward of DDP or FSDP on the stack, or None."""
    for frame in frames_above(_FRAMES):
        function, variable = _FORWARD_FUNCTIONS.get(module_path(frame.f_code.co_filename), ("", ""))
        if frame.f_code.co_name == function:
            given, tensor = frame.f_locals, sys.modules["torch"].Tensor
            things = _things((given.get(variable, ()), given.get("kwargs", {})))
            return next((thing for thing in things if isinstance(thing, tensor) and thing.dim()), None)
    return None


def is_one_of(given: Shape, shapes: list[Shape]) -> bool:
    """Whether a tensor of this shape can be one of those, reshaped, or nearly all of it, as tokens without the last.
    Half of one is a rank's own part."""
    return any(
        (prod(given) == prod(whole) and given[0] in whole)
        or (len(given) == len(whole) and all(map(int.__le__, given, whole)) and 2 * prod(given) > prod(whole))
        for whole in shapes
    )


def _things(thing: Any) -> Iterator[Any]:
    """Tensors, numbers and words."""
    return islice(_inside(thing, _LEVELS), _THINGS)


def _inside(thing: Any, levels: int) -> Iterator[Any]:
    if isinstance(thing, (sys.modules["torch"].Tensor, str, int, float)):
        yield thing
    elif levels and isinstance(thing, dict):
        for value in islice(thing.values(), _THINGS):
            yield from _inside(value, levels - 1)
    elif levels and isinstance(thing, (list, tuple)):
        for value in thing[:_THINGS]:
            yield from _inside(value, levels - 1)
    elif levels and isinstance(getattr(thing, "data", None), dict):  # transformers' BatchEncoding
        yield from _inside(thing.data, levels - 1)


def _numbers(tensor: Any) -> list[float]:
    """Some numbers of a tensor on the CPU; their distance matches no row's length, and is the same on all ranks."""
    torch, size = sys.modules["torch"], tensor.numel()
    plain = type(tensor) is torch.Tensor and tensor.layout is torch.strided and not tensor.is_complex()
    if not plain or tensor.device.type != "cpu":
        return []
    tensor = tensor.detach()
    if size > _NUMBERS:
        places = torch.arange(_NUMBERS, device="cpu") * round(size * 0.6180339887) % size
        tensor = tensor[torch.unravel_index(places, tensor.shape)]
    numbers: list[float] = tensor.reshape(-1).tolist()
    return numbers
