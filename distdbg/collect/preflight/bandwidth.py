"""Run an all-reduce over all nodes, then exchange data between each pair: one JSON line on standard output.

    python bandwidth.py RANK WORLD ADDRESS PORT gloo|nccl

{"ok": the sum was right, "all_reduce_s": best of several over `bytes`, "bytes", "pairs": {peer: [bytes/s …]}}
Pairs are those with a higher rank. They meet in rounds of a tournament: no node is in two pairs at a time.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path[0] = sys.path[0].rsplit("/distdbg/", 1)[0]

import datetime
import json
import os
import time
from collections.abc import Iterator
from typing import Any

_BYTES = 1 << 20
#: Where an all-reduce of _BYTES is quicker than this, pairs exchange more: the network is measured, not the start.
_QUICK_S = 0.02
_MANY_BYTES = 8 << 20
_TIMES = 5
_WITHIN = datetime.timedelta(seconds=30)


def rounds(world: int) -> Iterator[dict[int, int]]:
    """Each pair once: rank -> its peer in that round (the circle method; with an odd number one rests)."""
    places = list(range(world + world % 2))
    for _ in range(len(places) - 1):
        pairs = [(places[i], places[-1 - i]) for i in range(len(places) // 2)]
        yield {a: b for x, y in pairs if max(x, y) < world for a, b in ((x, y), (y, x))}
        places[1:] = [places[-1], *places[1:-1]]


def main(rank: int, world: int, address: str, port: int, backend: str) -> None:
    import torch
    import torch.distributed as dist

    host = f"[{address}]" if ":" in address else address
    device = torch.device("cuda", 0) if backend == "nccl" else torch.device("cpu")
    dist.init_process_group(
        backend, init_method=f"tcp://{host}:{port}", rank=rank, world_size=world, timeout=_WITHIN
    )  # fmt: skip
    data = torch.empty(_BYTES // 4, device=device)
    took: list[float] = []
    right = True
    for _ in range(_TIMES):
        data.fill_(rank + 1.0)
        dist.barrier()
        took.append(_timed(lambda: dist.all_reduce(data), torch, device))
        right &= bool((data == world * (world + 1) / 2).all())
    # All pairs exchange the same number of bytes, or their rates could not be compared.
    slowest = torch.tensor([min(took)], device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    count = _MANY_BYTES if float(slowest) < _QUICK_S else _BYTES
    pairs = {peer: rates for peer, rates in _pairs(rank, world, count, device) if peer > rank}
    answer = {"ok": right, "all_reduce_s": min(took), "bytes": _BYTES, "pairs": pairs, "backend": backend}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    dist.barrier()  # nobody takes its connections away while another is busy
    os._exit(0)  # torch's own end may abort, and nothing is left to be done


def _pairs(rank: int, world: int, count: int, device: Any) -> Iterator[tuple[int, list[float]]]:  # noqa: ANN401
    for pairing in rounds(world):
        if rank in pairing:
            yield pairing[rank], _exchange(pairing[rank], count, device)


def _exchange(peer: int, count: int, device: Any) -> list[float]:  # noqa: ANN401
    """Bytes a second each way; a first byte, which is not counted, opens the connection and waits for the other."""
    import torch
    import torch.distributed as dist

    def swap(count: int) -> float:
        out = torch.ones(count, dtype=torch.uint8, device=device)
        back = torch.empty_like(out)

        def both() -> None:
            asked = dist.batch_isend_irecv([dist.P2POp(dist.isend, out, peer), dist.P2POp(dist.irecv, back, peer)])
            for work in asked:
                work.wait()

        return _timed(both, torch, device)

    swap(1)
    return [count / swap(count) for _ in range(_TIMES)]


def _timed(work: Any, torch: Any, device: Any) -> float:  # noqa: ANN401
    if device.type == "cuda":
        torch.cuda.synchronize()
    begun = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5])
