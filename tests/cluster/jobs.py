"""Jobs that distdbg launches on a bed, and what they leave there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distdbg.rundir import RUNS_FOLDER, RunDir, list_runs
from tests.cluster.bed import Bed

#: Makes STEPS steps; rank RAISES raises in its fifth. Gradients are reduced by hand: with DDP and an
#: optimizer a rank loads twice as much of torch, and what is looked at here lies below them.
TRAIN = """
import os, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.Linear(4, 4)
for step in range(int(sys.argv[1])):
    if step == 5 and dist.get_rank() == int(os.environ.get("RAISES", "-1")):
        raise ValueError("a value that nobody expected")
    model(torch.randn(2, 4)).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.data.add_(parameter.grad, alpha=-0.1)
        parameter.grad = None
    time.sleep(0.02)
    if step == 5:
        open(f"{os.environ['STEPS']}/{dist.get_rank()}", "w").close()
# one piece: ranks that have a terminal together write between each other's pieces
print(f"{dist.get_rank()} {os.uname().nodename} {os.environ['GROUP_RANK']}")
dist.destroy_process_group()
"""
SALLOC = ("salloc", "-Q", "-N2")


@dataclass
class Job:
    """`folder` holds train.py, what was printed (out), and the run directories."""

    bed: Bed
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def run(self) -> RunDir:
        return list_runs(self.folder / RUNS_FOLDER)[-1]

    def trains(self, ranks: int = 4, within: float = 120) -> None:
        """Returns when every rank has made some steps."""
        deadline = time.monotonic() + within
        while len(os.listdir(self.folder / "steps")) < ranks:
            assert self.process.poll() is None and time.monotonic() < deadline, self.said()
            time.sleep(0.1)

    def said(self) -> str:
        return (self.folder / "out").read_text(errors="replace")

    def waits_for(self, text: str, within: float) -> None:
        deadline = time.monotonic() + within
        while text not in self.said():
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.1)

    def ends(self, within: float) -> int:
        return self.process.wait(within)

    def report(self) -> dict[str, Any]:
        """Built anew, with all that the nodes have written until now."""
        line = [sys.executable, "-m", "distdbg", "report", "--json", str(self.run.path)]
        found: dict[str, Any] = json.loads(subprocess.run(line, capture_output=True, text=True, check=False).stdout)
        return found

    def agent(self, host: str) -> int:
        """The agent's pid as the machine counts; its parent is its keeper."""
        return max(self.bed[host].pids_of("agent.py --remote", but="srun"))

    def launcher(self, host: str = "head") -> int:
        return self.bed[host].pids_of("-m distdbg launch", but="salloc")[0]


@contextmanager
def jobs(bed: Bed) -> Iterator[Callable[..., Job]]:
    """Gives `launch(*args, steps=…, env=…, on=host, inside=…, ranks=2)`; what still runs at the end is ended."""
    begun: list[Job] = []

    def launch(
        *args: str,
        steps: int | str = 100_000,
        env: Mapping[str, str] | None = None,
        on: str = "head",
        inside: Sequence[str] = SALLOC,
        train: str = TRAIN,
    ) -> Job:
        folder = bed.shared / f"job{len(list(bed.shared.iterdir()))}"
        (folder / "steps").mkdir(parents=True)
        (folder / "train.py").write_text(train)
        words = [sys.executable, "-m", "distdbg", "launch", "--nproc-per-node", "2", "--show-ranks", "all", *args]
        line = ["sh", "-c", 'cd "$0" && exec "$@"', str(folder), *inside, *words, "train.py", str(steps)]
        path = f"{os.getcwd()}:{os.getcwd()}/tests/at_exit"
        variables = {"STEPS": str(folder / "steps"), "PYTHONPATH": path, **(env or {})}
        with (folder / "out").open("wb") as out:
            begun.append(Job(bed, folder, bed.popen(on, *line, env=variables, stdout=out, stderr=out)))
        return begun[-1]

    try:
        yield launch
    finally:
        for job in begun:
            if job.process.poll() is None:
                job.process.kill()
                job.process.wait()


def nothing_is_left(bed: Bed, within: float = 20) -> None:
    """No process of a job, on any host that lives."""
    deadline = time.monotonic() + within
    while left := [
        line
        for host in bed.hosts.values()
        if host.alive
        for line in host.processes().values()
        if "train.py" in line or "agent.py" in line
    ]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
