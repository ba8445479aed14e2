"""A bed's head node, where jobs are submitted from."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from distdbg.rundir import list_runs

ROOT = Path(__file__).resolve().parents[2]
DISTDBG = [sys.executable, "-m", "distdbg"]
TRAIN = """
import os, signal, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, size, asked = dist.get_rank(), dist.get_world_size(), []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
first = int(open("ckpt").read()) if os.path.exists("ckpt") else 0
print("from", first, "on", os.uname().nodename, flush=True)
for step in range(first, int(sys.argv[1])):
    want = torch.tensor([float(bool(asked))])
    dist.all_reduce(want)
    if want:
        if rank == 0:
            open("ckpt", "w").write(str(step + 1000))
        break
    time.sleep(0.05)
dist.barrier()
dist.destroy_process_group()
sys.exit(int(sys.argv[2]) if rank == size - 1 and len(sys.argv) > 2 else 0)
"""


class Head:
    """Commands on the head, in a folder that all hosts see."""

    def __init__(self, bed, folder, user=None):
        self.bed, self.folder, self.user = bed, folder, user
        self.env = {name: value for name, value in os.environ.items() if name.startswith(("HOME", "DISTDBG_", "XDG_"))}
        self.env |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'at_exit'}", "TERM": "dumb"}

    def command(self, *words):
        return ["sh", "-c", 'cd "$0" && exec "$@"', str(self.folder), *map(str, words)]

    def run(self, *words, timeout=120, **options):
        return self.bed.run("head", *self.command(*words), env=self.env, user=self.user, timeout=timeout, **options)

    def distdbg(self, *words, **options):
        return self.run(*DISTDBG, *words, **options)

    def popen(self, *words, **options):
        return self.bed.popen("head", *self.command(*DISTDBG, *words), env=self.env, user=self.user, **options)

    @property
    def newest(self):
        return list_runs(self.folder / "distdbg-runs")[-1]

    def until(self, there, seconds=60):
        deadline = time.monotonic() + seconds
        while not there():
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.1)

    def interrupt(self, number=signal.SIGINT):
        """As Ctrl-C does, or a window that is closed; not the nsenter that has brought the launch in."""
        processes = self.bed["head"].processes().items()
        (pid,) = (pid for pid, line in processes if line.startswith(f"{sys.executable} -m distdbg launch"))
        os.kill(pid, number)

    def log(self):
        files = [*self.folder.glob("out"), *self.folder.glob("distdbg-runs/2*/batch.log")]
        return self.run("squeue", "-t", "all").stdout + "".join(file.read_text() for file in files)


def head_of(bed, name, user=None):
    folder = bed.shared / name
    folder.mkdir(mode=0o700)
    (folder / "train.py").write_text(TRAIN)
    os.chown(folder, user or -1, user or -1)
    return Head(bed, folder, user)
