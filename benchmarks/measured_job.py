"""The job that launch_overhead.py measures: a training script that knows of no launcher, only of the clock.

measured_job.py first-step FIFO_OUT FIFO_IN     one step, then tell and wait to be let go
measured_job.py steps COUNT WORK                COUNT steps; rank 0 prints their wall_us, median_us, cpu_us
measured_job.py calibrate                       prints the time of one unit of WORK in seconds
measured_job.py print MEGABYTES                 rank 0 prints so much, without a newline anywhere
measured_job.py sleep SECONDS                   a step every 10 ms for so long
"""

import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

torch.set_num_threads(1)


class Training:
    """Everything a hook can hang on: a sampler, a loader, DDP, backward, an optimizer. `work` pads the step."""

    def __init__(self, work: int) -> None:
        dist.init_process_group("gloo")
        self.data = TensorDataset(torch.randn(4096, 32), torch.randn(4096, 1))
        self.sampler = DistributedSampler(self.data)
        self.loader = DataLoader(self.data, batch_size=8, sampler=self.sampler)
        net = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
        self.model = DistributedDataParallel(net)
        self.optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
        self.matrix = torch.randn(128, 128)
        self.work = work

    def batches(self) -> Iterator[list[torch.Tensor]]:
        epoch = 0
        while True:
            self.sampler.set_epoch(epoch)
            yield from self.loader
            epoch += 1

    def step(self, batch: list[torch.Tensor]) -> None:
        x, y = batch
        for _ in range(self.work):
            torch.mm(self.matrix, self.matrix)
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def first_step(fifo_path: str, let_go: str) -> None:
    training = Training(work=0)
    training.step(next(training.batches()))
    dist.barrier()
    if dist.get_rank() == 0:
        with Path(fifo_path).open("w") as fifo:
            fifo.write(repr(time.time()))
        Path(let_go).read_text()
    dist.barrier()


def steps(count: int, work: int) -> None:
    """Wall time as the first decile: a hook costs every step the same, what else the machine does costs some steps."""
    training = Training(work)
    batches = training.batches()
    walls = []
    for number in range(count + count // 5):  # the first sixth warms up
        if number == count // 5:
            cpu = time.process_time()
        started = time.perf_counter()
        training.step(next(batches))
        walls.append(time.perf_counter() - started)
    cpu = time.process_time() - cpu
    if dist.get_rank() == 0:
        deciles = statistics.quantiles(walls[count // 5 :], n=10)
        measured = {"wall_us": deciles[0] * 1e6, "median_us": deciles[4] * 1e6, "cpu_us": cpu / count * 1e6}
        print(json.dumps(measured), flush=True)


def calibrate() -> None:
    training = Training(work=0)
    batches = training.batches()
    timings = []
    for work in (0, 20):
        training.work = work
        samples = []
        for _ in range(300):
            started = time.perf_counter()
            training.step(next(batches))
            samples.append(time.perf_counter() - started)
        timings.append(statistics.median(samples))
    if dist.get_rank() == 0:
        print(json.dumps({"bare_s": timings[0], "unit_s": (timings[1] - timings[0]) / 20}), flush=True)


def print_megabytes(megabytes: int) -> None:
    if int(os.environ["RANK"]) == 0:
        for _ in range(megabytes):
            sys.stdout.write("x" * 2**20)
        sys.stdout.flush()


def sleep(seconds: float) -> None:
    training = Training(work=0)
    batches = training.batches()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        training.step(next(batches))
        time.sleep(0.01)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["first-step", fifo_path, let_go]:
            first_step(fifo_path, let_go)
        case ["steps", count, work]:
            steps(int(count), int(work))
        case ["calibrate"]:
            calibrate()
        case ["print", megabytes]:
            print_megabytes(int(megabytes))
        case ["sleep", seconds]:
            sleep(float(seconds))
        case _:
            sys.exit(__doc__)
    gc.collect()  # DDP before the group it uses
    if dist.is_initialized():
        dist.destroy_process_group()
