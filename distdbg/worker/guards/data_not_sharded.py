"""What the first batch of a training loader looks like on this rank: whether all ranks read the same is judged outside.

A first batch is known again by a checksum of some of its numbers, on the CPU alone. Ranks that share a model by tensor
or pipeline parallelism must read the same: with the fact goes over which ranks the model is trained in parallel.
"""

from __future__ import annotations

import sys

from distdbg.worker.guards._base import users_line
from distdbg.worker.guards._groups import data_parallel_ranks
from distdbg.worker.guards._passes import PassGuard, samplers_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from distdbg.worker.guards._passes import Pass

#: Of each tensor so many numbers at its head are looked at, and of a batch so many things.
_NUMBERS = 256
_THINGS = 8


class DataNotSharded(PassGuard):
    id = "data-not-sharded"
    costs = "about 50 us for each of the first three passes over a loader"
    blind = (
        "models without DDP or FSDP, whose ranks may share data on purpose; IterableDataset; batches of fewer than "
        "four different numbers; batches that the loader puts on a device"
    )

    def begin(self) -> None:
        super().begin()
        self._batches_left = 24
        self.listen("pass-begins", self._first_batch)

    def pass_begins(self, now: Pass, _iterator: Any) -> bool:  # noqa: ANN401
        if now.total < 2 or self._batches_left <= 0 or self.desk.distributed() is None:
            return False
        now.where = users_line()
        return True

    def _first_batch(self, began: tuple[Any, Any]) -> None:
        iterator, batch = began
        if (
            self._now is None
            or self._now[0]() is not getattr(iterator, "_index_sampler", None)
            or self._batches_left <= 0
        ):
            return
        self._batches_left -= 1
        numbers: list[str] = []
        _collect(batch, numbers, _THINGS)
        if len(set(" ".join(numbers).split())) >= 4:
            from zlib import crc32

            names = [type(sampler).__name__ for sampler in samplers_of(iterator)]
            self._now[1].about = crc32("\n".join(numbers).encode("utf-8", "replace")), names, _length(iterator)

    def trained(self, now: Pass) -> None:
        ranks = data_parallel_ranks(self.desk.model())
        if now.about is None or ranks is None or len(ranks) < 2:
            return
        print_, names, length = now.about
        number = sum(1 for key in self._told if now.where and key[:2] == tuple(now.where[:2]))
        if number < 3:
            self.say(now.where, "", number, batch=print_, samplers=names, items=length, batches=now.total, among=ranks)


def _length(iterator: Any) -> int:  # noqa: ANN401
    try:
        return len(iterator._dataset)
    except Exception:
        return -1


def _collect(thing: Any, numbers: list[str], most: int) -> None:  # noqa: ANN401
    """The first numbers and words in a batch, as text. Nothing is read from a device."""
    if len(numbers) >= most:
        return
    torch = sys.modules["torch"]
    if type(thing) is torch.Tensor:
        if thing.device.type == "cpu" and thing.layout is torch.strided and thing.numel():
            part = thing.detach().reshape(-1)[:_NUMBERS] if thing.is_contiguous() else thing.detach()[:1].reshape(-1)
            numbers.append(" ".join(map(repr, part[:_NUMBERS].tolist())))
    elif isinstance(thing, (str, int, float)):
        numbers.append(repr(thing)[:200])
    elif isinstance(thing, dict):
        for value in list(thing.values())[:most]:
            _collect(value, numbers, most)
    elif isinstance(thing, (list, tuple)):
        for value in thing[:most]:
            _collect(value, numbers, most)
    elif hasattr(thing, "data") and isinstance(thing.data, dict):  # transformers' BatchEncoding
        _collect(thing.data, numbers, most)
