"""What each level of `--watch` costs a step beside all that is on anyway: with it and without it, turn by turn.

    python benchmarks/watch_overhead.py                  short steps, then those of a transformer; about two minutes
    python benchmarks/watch_overhead.py --rounds 10      a first look

Short steps are those of worker_overhead.py: DDP on the CPU, four modules. The others are a transformer's of 1.2 million
parameters in 52 tensors, under DDP, too. What a level does once (its table, its hooks) is done before the clock starts;
of `compile` it is the cost where nothing is being compiled.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from worker_overhead import STEPS, steps

from distdbg.worker.hooks.bus import Bus
from distdbg.worker.hooks.importing import ImportWatch
from distdbg.worker.link import encode
from distdbg.worker.page import PageWriter
from distdbg.worker.watch import DUMP_VARIABLE, Watches
from distdbg.worker.watch.gradients import Series

LEVELS = ("numerics", "numerics + dump", "gradients", "shapes", "compile")
#: `compile` reads the losses of its first twenty steps, and no more after that.
_FIRST_STEPS = {"compile": 21}


def _fail(*what: object) -> None:
    raise SystemExit(f"not listened to: {what}")


class Samples:
    """The CPU time in the samples of gradients themselves: differences of whole steps drown on a busy machine."""

    def __init__(self) -> None:
        self.seconds = 0.0
        plain = Series.turn

        def turn(series: Series, *about: Any) -> None:  # noqa: ANN401
            begun = time.thread_time()
            plain(series, *about)
            self.seconds += time.thread_time() - begun

        Series.turn = turn  # type: ignore[method-assign, assignment]


def transformer_steps() -> Iterator[None]:
    """An endless training loop; each `next` is one step."""
    layers = (torch.nn.TransformerEncoderLayer(128, 4, 512, batch_first=True, norm_first=True) for _ in range(4))
    net = torch.nn.Sequential(torch.nn.Embedding(2000, 128), *layers, torch.nn.Linear(128, 1000))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    while True:
        words = torch.randint(1000, (2, 33))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten()).backward()
        optimizer.step()
        yield


def measure(
    session: Any,  # noqa: ANN401
    samples: Samples,
    loop: Iterator[None],
    rounds: int,
    count: int,
) -> tuple[float, dict[str, float]]:
    """Microseconds of CPU time of a step without any, and what each level adds: medians over the rounds."""
    times: dict[str, list[float]] = {level: [] for level in ("", *LEVELS)}
    own = []
    for number in range(rounds + 2):
        order = ("", *LEVELS) if number % 2 else (*reversed(LEVELS), "")
        for level in order:
            watches = _begin(session, level)
            for _ in range(_FIRST_STEPS.get(level, 1)):  # the first forward puts the hooks in
                next(loop)
            samples.seconds = 0.0
            started = time.process_time()
            for _ in range(count):
                next(loop)
            if number >= 2:
                times[level].append((time.process_time() - started) / count * 1e6)
            if level == "gradients":
                own.append(samples.seconds / count * 1e6)
            watches.end()
    added = {level: statistics.median(a - b for a, b in zip(times[level], times[""], strict=True)) for level in LEVELS}
    return statistics.median(times[""]), added | {"… its own code": statistics.median(own)}


def _begin(session: Any, level: str) -> Watches:  # noqa: ANN401
    os.environ[DUMP_VARIABLE] = "dump" if level.endswith("dump") else ""
    watches = Watches(session)
    watches.begin(level.partition(" ")[0])
    return watches


def _session(folder: str) -> Any:  # noqa: ANN401
    """As a rank has it; what is sent is encoded, and goes nowhere."""

    def send(_op: str, fields: dict[str, object], **_how: object) -> bool:
        return bool(encode(fields))

    def fact(kind: str, **fields: object) -> bool:
        return send(kind, fields) if kind != "watch-failed" else bool(_fail(kind, fields))

    page = PageWriter(f"{folder}/page", 0, 1)
    bus = Bus(ImportWatch(_fail), _fail)
    page.subscribe(bus)
    return SimpleNamespace(bus=bus, page=page, fact=fact, link=SimpleNamespace(send=send), rank=0, stem=f"{folder}/0")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--work", type=int, default=0, help="pads a short step with so many matrix products")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    kinds: dict[str, Callable[[], Iterator[None]]] = {
        "short": lambda: steps(arguments.work), "transformer": transformer_steps,
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="wo-") as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        session, samples = _session(folder), Samples()
        for kind, loop in kinds.items():
            plain, added = measure(session, samples, loop(), arguments.rounds, STEPS if kind == "short" else 20)
            print(f"{kind}: a step of {plain:.0f} us")
            for level, more in added.items():
                print(f"  {level:16} +{more:.1f} us ({100 * more / plain:.1f} %)")
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
