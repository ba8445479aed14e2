"""Whether a rank's memory stays flat under the worker side: 100,000 steps with it and without it, side by side.

    python benchmarks/worker_memory.py [--steps 100000] [--check]

A step takes a batch from a DataLoader with a DistributedSampler, runs DDP's forward (gloo, one rank), backward and an
optimizer; all that is on by default listens. Printed is the rank's resident memory at every tenth of the way, and what
it has grown by since the second tenth. `--check` fails above 1 MiB more than without.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

_MOST_MIB = 1.0

SCRIPT = """
import gc, json, os, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

steps, path = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
data = TensorDataset(torch.randn(512, 8), torch.randn(512, 1))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
done, epoch, seen = 0, 0, []
while done < steps:
    sampler.set_epoch(epoch)
    epoch += 1
    for batch, target in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(batch), target).backward()
        optimizer.step()
        done += 1
        if done % (steps // 10) == 0:
            gc.collect()
            seen.append(int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
        if done == steps:
            break
json.dump(seen, open(path, "w"))
dist.destroy_process_group()
"""


def measure(command: list[str], steps: int, folder: Path) -> list[float]:
    """MiB resident at each tenth of the steps."""
    script, sizes_path = folder / "steps.py", folder / "sizes.json"
    script.write_text(SCRIPT)
    argv = [*command, str(script), str(steps), str(sizes_path)]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed: {done.stderr[-2000:]}")
    return [size / 2**20 for size in json.loads(sizes_path.read_text())]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    commands = {
        "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone"],
        "distdbg launch": [sys.executable, "-m", "distdbg", "launch", "--run-dir", "run"],
    }
    grown = {}
    for name, command in commands.items():
        with tempfile.TemporaryDirectory() as folder:
            sizes = measure(command, options.steps, Path(folder))
        grown[name] = sizes[-1] - sizes[1]
        print(f"{name}: {' '.join(f'{size:.1f}' for size in sizes)} MiB, {grown[name]:+.2f} MiB", flush=True)
    over = grown["distdbg launch"] - grown["torchrun"] > _MOST_MIB
    return int(options.check and over)


if __name__ == "__main__":
    sys.exit(main())
