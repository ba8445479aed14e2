"""What `--watch numerics` costs a step beside all that is on anyway: with it and without it, turn by turn.

    python benchmarks/watch_overhead.py                  rounds of 40 steps each way; under a minute
    python benchmarks/watch_overhead.py --work 200       the same with longer steps

The steps are those of worker_overhead.py: DDP on the CPU, four modules.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from types import SimpleNamespace

import torch
import torch.distributed as dist
from worker_overhead import STEPS, steps

from distdbg.worker import heartbeat
from distdbg.worker.bus import Bus
from distdbg.worker.importing import ImportWatch
from distdbg.worker.page import PageWriter
from distdbg.worker.watch.numerics import NumericsWatch


def _fail(*what: object) -> None:
    raise SystemExit(f"not listened to: {what}")


def measure(page: PageWriter, rounds: int, work: int) -> tuple[float, float]:
    """Microseconds of a step without it, and what it adds: medians over the rounds."""
    bus = Bus(ImportWatch(_fail), _fail)
    heartbeat.subscribe(bus, page)
    session = SimpleNamespace(bus=bus, page=page, fact=_fail)
    loop = steps(work)
    plain, added = [], []
    for number in range(rounds + 10):
        times = {}
        for on in (True, False) if number % 2 else (False, True):
            watch = NumericsWatch(session) if on else None  # type: ignore[arg-type]
            next(loop)  # the first forward puts the hooks in
            started = time.perf_counter()
            for _ in range(STEPS):
                next(loop)
            times[on] = (time.perf_counter() - started) / STEPS * 1e6
            if watch is not None:
                watch.end()
        if number >= 10:
            plain.append(times[False])
            added.append(times[True] - times[False])
    return statistics.median(plain), statistics.median(added)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--work", type=int, default=0, help="pads a step with so many matrix products")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="wo-") as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        plain, added = measure(PageWriter(f"{folder}/page", 0, 1), arguments.rounds, arguments.work)
        dist.destroy_process_group()
    print(f"a step of {plain:.0f} us: +{added:.1f} us ({100 * added / plain:.1f} %)")


if __name__ == "__main__":
    main()
