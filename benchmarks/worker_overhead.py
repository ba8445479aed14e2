"""What the worker side costs a step: the same steps with and without it, turn by turn, in one process.

    python benchmarks/worker_overhead.py                 rounds of 40 steps each way; about a minute
    python benchmarks/worker_overhead.py --check         exit code 1 where a step of about 0.5 ms costs over 20 us more,
                                                         or boot.py over 50 ms
    python benchmarks/worker_overhead.py --json FILE
    python benchmarks/worker_overhead.py --device cuda   on a GPU and NCCL, real or simulated (gpu_box)

A step takes a batch from a DataLoader, runs DDP's forward (gloo, one rank), backward and an optimizer. Everything that
is on by default listens. A round's figure is the difference between its two halves, which follow one another within
40 ms and change places every round; the result is the median over the rounds, with its 95 % range by bootstrap. The
same in CPU time of the process says what other work on the machine does not change.
Beside it stand the cost of one tick of the heartbeat page, what a collective costs more that the script calls itself
(DDP's own are not called from Python), and the CPU time that boot.py adds to a rank.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from distdbg.worker.calls import CallLog
from distdbg.worker.guards.shared.base import GuardContext
from distdbg.worker.guards.shared.runner import GuardRunner
from distdbg.worker.hooks.bus import Bus
from distdbg.worker.hooks.hook_points import HOOK_POINTS
from distdbg.worker.hooks.importing import ImportWatch
from distdbg.worker.models import LastModel
from distdbg.worker.page import OTHER, PageWriter
from distdbg.worker.page import STEPS as STEP_COUNT

BOOT = Path(__file__).resolve().parent.parent / "distdbg" / "worker" / "boot.py"
BUDGET_US, BOOT_BUDGET_MS = 20.0, 50.0
STEPS = 40
#: Some hooks are installed when the first pass over a loader begins or ends; a pass has 512 steps.
_FIRST_PASS = 520

Patch = tuple[Any, str, Any, Any]


class Switch:
    """Takes the worker side's hooks out and puts them back, by what installing them changed."""

    def __init__(self, install: Callable[[], None]) -> None:
        owners = list(_owners())
        before = [dict(vars(owner)) for owner in owners]
        self._hooks = [
            sys.modules["torch.optim.optimizer"].__dict__[f"_global_optimizer_{when}_hooks"] for when in ("pre", "post")
        ]
        install()
        self._hooked = [dict(hooks) for hooks in self._hooks]
        self._patches: list[Patch] = [
            (owner, name, was[name], now)
            for owner, was in zip(owners, before, strict=True)
            for name, now in list(vars(owner).items())
            if name in was and was[name] is not now and not name.startswith("__weak")
        ]

    def turn(self, *, on: bool) -> None:
        for owner, name, without, with_it in self._patches:
            setattr(owner, name, with_it if on else without)
        for hooks, hooked in zip(self._hooks, self._hooked, strict=True):
            hooks.clear()
            hooks.update(hooked if on else {})

    def __len__(self) -> int:
        return len(self._patches) + sum(map(len, self._hooked))


def _owners() -> Iterator[Any]:
    """Every module that is listened to, and the classes in it."""
    for name in {name for places in HOOK_POINTS.values() for name, _, _ in places} | {"torch.autograd.graph"}:
        module = sys.modules.get(name)
        if module is not None:
            yield module
            yield from (c for c in list(vars(module).values()) if issubclass(type(c), type) and c.__module__ == name)


def steps(work: int, device: str) -> Iterator[None]:
    """An endless training loop; each `next` is one step."""
    data = TensorDataset(torch.randn(4096, 32), torch.randn(4096, 1))
    net = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)).to(device)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    matrix = torch.randn(128, 128)
    while True:
        for x, y in DataLoader(data, batch_size=8):
            for _ in range(work):
                torch.mm(matrix, matrix)
            torch.nn.functional.mse_loss(model(x.to(device)), y.to(device)).backward()
            optimizer.step()
            optimizer.zero_grad()
            yield


def measure_steps(page: PageWriter, rounds: int, work: int, device: str, *, guards: bool) -> dict[str, Any]:
    watch = ImportWatch(_fail)
    bus = Bus(watch, lambda _event, who, error: _fail(who, error))
    loop = steps(work, device)
    next(loop)

    def install() -> None:
        _install(bus, page, guards=guards)
        for _ in range(_FIRST_PASS):
            next(loop)

    switch = Switch(install)
    numbers = torch.ones(64, device=device)

    def step() -> None:
        next(loop)

    figures = {"hooks": len(switch), "rounds": rounds}
    return figures | {"step": alternate(switch, step, rounds),
                   "collective": alternate(switch, lambda: dist.all_reduce(numbers), rounds)}  # fmt: skip


def alternate(switch: Switch, call: Callable[[], object], rounds: int) -> dict[str, Any]:
    """Microseconds of a call without the hooks, and what they add."""
    differences, plain, spent = [], [], []
    for number in range(rounds + 10):
        times, cpu = {}, {}
        for on in (True, False) if number % 2 else (False, True):
            switch.turn(on=on)
            started, begun = time.perf_counter(), time.process_time()
            for _ in range(STEPS):
                call()
            times[on] = (time.perf_counter() - started) / STEPS * 1e6
            cpu[on] = (time.process_time() - begun) / STEPS * 1e6
        if number >= 10:  # the first rounds warm up
            differences.append(times[True] - times[False])
            plain.append(times[False])
            spent.append(cpu[True] - cpu[False])
    low, high = _range_of_median(differences)
    return {
        "plain_us": round(statistics.median(plain), 1),
        "added_us": round(statistics.median(differences), 2),
        "added_us_95": [round(low, 2), round(high, 2)],
        "added_cpu_us": round(statistics.median(spent), 2),
    }


def _install(bus: Bus, page: PageWriter, *, guards: bool) -> None:
    """What a session does that costs a step."""
    model = LastModel()
    page.subscribe(bus, model.seen)
    with tempfile.TemporaryDirectory() as folder:  # what is open stays
        CallLog(f"{folder}/00000").subscribe(bus, page)
    if guards:
        context = SimpleNamespace(rank=0, bus=bus, page=page, fact=_take_fact, model=model)
        GuardRunner(GuardContext(context, {})).begin()


def _fail(who: object, error: object) -> None:
    raise SystemExit(f"not listened to: {who}: {error!r}")


def _take_fact(kind: str, **fields: object) -> bool:
    if kind == "guard-failed":
        _fail(fields["guard"], fields["error"])
    return True


def _range_of_median(values: list[float]) -> tuple[float, float]:
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(400))
    return medians[9], medians[389]


def measure_tick(page: PageWriter) -> float:
    """Nanoseconds of one tick at a step: a count, three stores and a look at the clock."""
    tick, samples = page.ticker(OTHER, STEP_COUNT), []
    for _ in range(50):
        started = time.perf_counter_ns()
        for _ in range(2000):
            tick(None)
        samples.append((time.perf_counter_ns() - started) / 2000)
    return statistics.median(samples)


def measure_boot(folder: Path, rounds: int) -> dict[str, float]:
    """CPU milliseconds of a rank that imports torch and ends, with boot.py and without, interleaved."""
    script = folder / "script.py"
    script.write_text("import torch\n")
    spent: dict[bool, list[float]] = {False: [], True: []}
    with _agent(folder) as environment:
        for _ in range(rounds):
            for boot in (False, True):
                words = [str(BOOT), str(script)] if boot else [str(script)]
                rank = subprocess.Popen([sys.executable, "-u", *words], env=environment)
                _, status, usage = os.wait4(rank.pid, 0)
                if rank.returncode is None:
                    rank.returncode = os.waitstatus_to_exitcode(status)
                spent[boot].append((usage.ru_utime + usage.ru_stime) * 1e3)
    differences = [a - b for a, b in zip(spent[True], spent[False], strict=True)]
    return {"plain_ms": round(statistics.median(spent[False])), "added_ms": round(statistics.median(differences), 1)}


class _agent:  # noqa: N801
    """A socket that takes connections and says nothing; gives a rank's environment."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> dict[str, str]:
        import socket

        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(self._folder / "agent.sock"))
        self._server.listen(64)
        return {**os.environ, "RANK": "0", "DISTDBG_NODE_DIR": str(self._folder)}

    def __exit__(self, *_exception: object) -> None:
        self._server.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--work", type=int, default=0, help="pads a step with so many matrix products")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--no-guards", action="store_true", help="without the guards, to see their share")
    parser.add_argument("--boot-rounds", type=int, default=9)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="wo-") as name:
        folder = Path(name)
        dist.init_process_group(
            "gloo" if arguments.device == "cpu" else "nccl", init_method=f"file://{folder}/store", rank=0, world_size=1
        )
        page = PageWriter(f"{folder}/00000.page", 0, 1)
        result: dict[str, Any] = {
            **measure_steps(page, arguments.rounds, arguments.work, arguments.device, guards=not arguments.no_guards),
            "tick_ns": round(measure_tick(page)),
            "boot": measure_boot(folder, arguments.boot_rounds),
        }
        dist.destroy_process_group()
    step, call, boot = result["step"], result["collective"], result["boot"]
    print(f"a step of {_words(step)}; {result['hooks']} hooks")
    print(f"a collective called from Python, {_words(call)}")
    print(f"one tick of the heartbeat page: {result['tick_ns']} ns")
    print(f"boot.py around a script that imports torch ({boot['plain_ms']} ms of CPU): +{boot['added_ms']} ms")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    over = step["added_us"] > BUDGET_US or boot["added_ms"] > BOOT_BUDGET_MS
    return 1 if arguments.check and over else 0


def _words(figures: dict[str, Any]) -> str:
    low, high = figures["added_us_95"]
    wall = f"{figures['plain_us']} us: +{figures['added_us']} us (95 %: {low} to {high})"
    return f"{wall}; CPU +{figures['added_cpu_us']} us"


if __name__ == "__main__":
    sys.exit(main())
