"""Traces the programs beside this file with torch.profiler, as their author would: `trace_them.py FOLDER NAME…`.

Each program has `main(profiler)`, which calls `profiler.step()` after each step, and writes FOLDER/NAME.json.gz. One
that says RANKS runs in so many processes over gloo, and writes FOLDER/NAME.rank<n>.json.gz.
"""

import importlib
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.profiler import ProfilerActivity, profile, schedule


def trace(name: str, file: Path) -> None:
    torch.manual_seed(0)
    plan = schedule(wait=1, warmup=1, active=6, repeat=1)
    with profile(
        activities=[ProfilerActivity.CPU], with_stack=True, record_shapes=True, schedule=plan,
        on_trace_ready=lambda p: p.export_chrome_trace(str(file)),
    ) as profiler:  # fmt: skip
        importlib.import_module(name).main(profiler)


def of_rank(rank: int, ranks: int, folder: Path, name: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/{name}.meet", rank=rank, world_size=ranks)
    trace(name, folder / f"{name}.rank{rank}.json.gz")
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # gloo's threads of a forked process are not worth waiting for


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    sys.path.insert(0, str(Path(__file__).parent))
    torch.set_num_threads(1)
    for name in sys.argv[2:]:
        ranks = getattr(importlib.import_module(name), "RANKS", 1)
        if ranks > 1:
            mp.start_processes(of_rank, (ranks, folder, name), ranks, start_method="fork")
        else:
            trace(name, folder / f"{name}.json.gz")
