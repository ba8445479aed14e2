"""What `distdbg launch` pays for looking at its machine: milliseconds of CPU and of time, median of several processes.

    python benchmarks/preflight_cost.py [--rounds 7]

Counted from a launcher that is loaded and has made its run directory; imports of the look's own are in it.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

_LOOK = """
import tempfile, time
from pathlib import Path
import distdbg.cli.commands.launch, distdbg.launch.run
from distdbg.rundir import create_run_dir
with tempfile.TemporaryDirectory() as folder:
    run = create_run_dir("cost", parent=Path(folder))
    cpu, wall = time.process_time(), time.perf_counter()
    from distdbg.launch.plan.quick_preflight import quick_preflight
    quick_preflight(run)
    print(1000 * (time.process_time() - cpu), 1000 * (time.perf_counter() - wall))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    costs = [_once() for _ in range(parser.parse_args().rounds)]
    cpu, wall = (statistics.median(one[at] for one in costs) for at in (0, 1))
    print(f"{cpu:.0f} ms of CPU, {wall:.0f} ms")


def _once() -> tuple[float, float]:
    done = subprocess.run([sys.executable, "-c", _LOOK], capture_output=True, text=True, check=True)
    cpu, wall = map(float, done.stdout.split())
    return cpu, wall


if __name__ == "__main__":
    main()
