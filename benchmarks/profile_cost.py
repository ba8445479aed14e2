"""What a profiled step costs, with Python stacks and without, and what is paid once the window is over.

    python benchmarks/profile_cost.py               two models, some seconds each
    python benchmarks/profile_cost.py --json FILE

Steps of a small transformer (many short operators: the worst case) and of the same with wider layers, on one CPU
thread. Times are CPU time, those of steps medians. `stop_ms` is what the training waits for at the end of a window of
10 steps; lines, writing and packing (`write_ms`) happen in a thread beside it. Outside of the window nothing is paid.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from distdbg.worker.profile.events import Lines
from distdbg.worker.profile.profiler import begin, pack

STEPS = 10


def training(width: int) -> Callable[[], None]:
    layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(8, 32, width)

    def step() -> None:
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(5):
        step()
    return step


def median_ms(step: Callable[[], None]) -> float:
    times = []
    for _ in range(STEPS):
        begun = time.process_time()
        step()
        times.append(time.process_time() - begun)
    return statistics.median(times) * 1e3


def measure(step: Callable[[], None], folder: Path, *, stacks: bool) -> dict[str, float]:
    profile = begin(stacks=stacks)
    inside = median_ms(step)
    begun = time.process_time()
    profile.__exit__(None, None, None)
    stopped = time.process_time()
    raw, packed = folder / "raw", folder / "packed"
    profile.export_chrome_trace(str(raw))
    size = raw.stat().st_size
    pack(str(raw), str(packed), {"x": 1}, [Lines(profile.kineto_results).events])
    written = time.process_time()
    return {
        "step_ms": round(inside, 2),
        "stop_ms": round((stopped - begun) * 1e3),
        "write_ms": round((written - stopped) * 1e3),
        "MB_a_step": round(size / STEPS / 1e6, 2),
        "packed_KB_a_step": round(packed.stat().st_size / STEPS / 1e3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        measure(training(32), Path(name), stacks=True)  # the first start of the profiler in a process takes longer
        for title, width in (("short operators", 32), ("wide", 256)):
            step = training(width)
            found[title] = {
                "plain": {"step_ms": round(median_ms(step), 2)},
                "without stacks": measure(step, Path(name), stacks=False),
                "with stacks": measure(step, Path(name), stacks=True),
            }
    for title, rows in found.items():
        print(title)
        for row, figures in rows.items():
            print(f"  {row:16}" + "  ".join(f"{key} {value:,}" for key, value in figures.items()))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
