"""For how long `distdbg hang-dump` holds a rank up: the longest gap in a loop that does nothing but look at the clock.

    python benchmarks/capture_pause.py [--runs 10] [--ranks 2] [--check]

The ranks have torch imported and thirty frames on their stack. Each line is over all ranks of all runs: the longest
gap that a rank had while it was captured, in ms; `quiet` is the same loop for as long without a capture, which is what
this machine's scheduler does by itself. With --check the exit code is 1 where the median of `stacks`, which is a dump
without C frames, is 50 ms or more.
"""

from __future__ import annotations

import argparse
import mmap
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: The issue's bound for a rank's pause without --native.
MOST_MS = 50.0

RANK = """
import mmap, struct, sys, time
import torch
file = open(sys.argv[1], "r+b")
page = mmap.mmap(file.fileno(), 16)
def loop():
    last, longest = time.perf_counter_ns(), 0
    while True:
        now = time.perf_counter_ns()
        if page[8]:
            page[8], longest = 0, 0
        elif now - last > longest:
            longest = now - last
            page[:8] = struct.pack("q", longest)
        last = now
        time.sleep(0)
def deeper(n):
    return loop() if n == 0 else deeper(n - 1)
page[9] = 1
deeper(30)
"""


class Rank:
    def __init__(self, number: int, folder: Path) -> None:
        path = folder / f"page{number}"
        path.write_bytes(bytes(16))
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), 16)
        self.process = subprocess.Popen([sys.executable, "-c", RANK, str(path)], env=os.environ | {"RANK": str(number)})

    @property
    def up(self) -> bool:
        return self._page[9] == 1

    def forget(self) -> None:
        self._page[8] = 1
        time.sleep(0.05)

    @property
    def longest_ms(self) -> float:
        (found,) = struct.unpack("q", self._page[:8])
        return float(found) / 1e6


def measured(ranks: list[Rank], command: list[str], cwd: Path) -> list[float]:
    for rank in ranks:
        rank.forget()
    subprocess.run(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return [rank.longest_ms for rank in ranks]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--check", action="store_true", help="exit code 1 from 50 ms on, without C frames")
    options = parser.parse_args()
    medians: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ranks = [Rank(number, folder) for number in range(options.ranks)]
        try:
            while not all(rank.up for rank in ranks):
                assert all(rank.process.poll() is None for rank in ranks), "a rank died"
                time.sleep(0.1)
            pids = [word for rank in ranks for word in ("--pid", str(rank.process.pid))]
            dump = [sys.executable, "-m", "distdbg", "hang-dump", "--interval", "0.3", *pids]
            ways = {"quiet": ["sleep", "1"], "stacks": [*dump, "--native", "0"], "native": [*dump, "--native", "1"]}
            print(f"{'':8} {'median ms':>9} {'worst ms':>9}")
            for way, command in ways.items():
                found = [gap for _ in range(options.runs) for gap in measured(ranks, command, folder)]
                medians[way] = statistics.median(found)
                print(f"{way:8} {medians[way]:>9.1f} {max(found):>9.1f}", flush=True)
        finally:
            for rank in ranks:
                rank.process.kill()
                rank.process.wait()
    late = medians["stacks"] >= MOST_MS
    if late:
        print(f"a rank is held up for {medians['stacks']:.1f} ms: the bound is {MOST_MS:g} ms")
    return 1 if options.check and late else 0


if __name__ == "__main__":
    sys.exit(main())
