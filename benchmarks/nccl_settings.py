"""Measure what torch's and NCCL's settings cost a collective: CPU time of a rank, as a ratio to a rank without them.

    python benchmarks/nccl_settings.py [--rounds 5] [--collectives 4000]

Runs on the GPU box, where a collective itself takes next to no time, so that what torch does about it is nearly all:
on a real device the ratios are smaller. A round runs each setting once, in a process of its own and in an order of its
own. A process repeats its collectives eight times and takes the fastest; so does the table of its rounds, beside the
smallest and the largest ratio within a round: other work on the machine makes a collective slower, never faster.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from gpu_box.box import gpu_box
from gpu_box.build import TORCH, build

RANK = """
import os, sys, time
import torch, torch.distributed as dist
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
numbers, count = torch.ones(16, device="cuda"), int(sys.argv[1])
least = float("inf")
for repeated in range(8):
    began = time.process_time()
    for n in range(count):
        dist.all_reduce(numbers)
        if n % 50 == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    least = min(least, time.process_time() - began)
print(least / count * 1e6, flush=True)
os._exit(0)
"""
#: The recorder is on by default from torch 2.9 on, and dumps at a timeout; monitoring is on by default.
BARE = {"TORCH_FR_BUFFER_SIZE": "0", "TORCH_NCCL_TRACE_BUFFER_SIZE": "0", "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
        "TORCH_NCCL_ENABLE_MONITORING": "0", "NCCL_RAS_ENABLE": "0"}  # fmt: skip
RECORDER = {"TORCH_FR_BUFFER_SIZE": "2000", "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"}
BASE = "without"
SETTINGS: dict[str, dict[str, str]] = {
    BASE: {},
    "TORCH_NCCL_ASYNC_ERROR_HANDLING=3": {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"},
    "TORCH_FR_BUFFER_SIZE=2000": RECORDER,
    "TORCH_FR_BUFFER_SIZE=20000": dict.fromkeys(RECORDER, "20000"),
    "the same, 2000, TORCH_NCCL_DUMP_ON_TIMEOUT=1": RECORDER | {"TORCH_NCCL_DUMP_ON_TIMEOUT": "1"},
    "the same, 2000, and its pipe": RECORDER | {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "{}/pipe_"},
    "TORCH_NCCL_ENABLE_MONITORING=1 (heartbeat)": {"TORCH_NCCL_ENABLE_MONITORING": "1"},
    "TORCH_NCCL_ENABLE_TIMING=1": {"TORCH_NCCL_ENABLE_TIMING": "1"},
    "TORCH_NCCL_DESYNC_DEBUG=1": {"TORCH_NCCL_DESYNC_DEBUG": "1"},
    "TORCH_NCCL_PROPAGATE_ERROR=1": {"TORCH_NCCL_PROPAGATE_ERROR": "1"},
    "NCCL_DEBUG=WARN": {"NCCL_DEBUG": "WARN"},
    "NCCL_RAS_ENABLE=1": {"NCCL_RAS_ENABLE": "1"},
}


def microseconds(root: Path, settings: dict[str, str], collectives: int) -> float:
    with gpu_box(root, devices=1, memory="8G") as box:
        own = {name: value.format(box.folder) for name, value in settings.items()}
        done = subprocess.run(
            [sys.executable, "-c", RANK, str(collectives)], env={**os.environ, **box.environment(), **BARE, **own},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
        )  # fmt: skip
    return float(done.stdout.split()[-1])  # NCCL_DEBUG prints its version before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--collectives", type=int, default=4000)
    options = parser.parse_args()
    root = build(TORCH)
    took: dict[str, list[float]] = defaultdict(list)
    for _ in range(options.rounds):
        for name in random.sample(list(SETTINGS), len(SETTINGS)):
            took[name].append(microseconds(root, SETTINGS[name], options.collectives))
    print(f"{'us of CPU a collective':>24}   ratio (smallest to largest)   setting")
    for name in SETTINGS:
        ratios = [one / base for one, base in zip(took[name], took[BASE], strict=True)]
        least, within = min(took[name]), f"({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"{least:24.1f}   {least / min(took[BASE]):5.2f} {within:28}{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
