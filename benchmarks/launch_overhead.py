"""The one budget: what `distdbg launch` costs beside plain torchrun, in paired, interleaved runs of the same job.

    python benchmarks/launch_overhead.py                  everything, about ten minutes on two cores
    python benchmarks/launch_overhead.py steps --rounds 3
    python benchmarks/launch_overhead.py --check          exit code 1 where the budget is exceeded

Budget: from command to first step at most 10 % or 0.4 s more, whichever is larger; at most 50 us of a 5 ms step and
20 us of a 0.5 ms step; launcher and each agent at most 60 MB, also while a rank prints 200 MB.

A round runs every variant once, in turn, so that what else the machine does falls on all of them alike; a figure is
the median over the rounds of the difference to plain torchrun *of the same round*. Only one job runs at a time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

JOB = Path(__file__).with_name("measured_job.py")
VARIANTS = ("torchrun", "worker-side off", "worker-side on")
START_S, START_SHARE = 0.4, 0.10
STEP_BUDGET_US = {"0.5 ms": 20.0, "5 ms": 50.0}
RSS_BUDGET_MB = 60.0
#: What a preset might set; unset for both, and a scheduler's traces besides.
FOREIGN = ("NCCL_", "TORCH_", "GLOO_", "SLURM_", "PET_", "DISTDBG_", "PYTHONFAULTHANDLER", "PYTHONUNBUFFERED")


class Run:
    """One job under one variant, as one or more processes that belong together."""

    def __init__(self, variant: str, nodes: int, per_node: int, arguments: list[str]) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="launch-overhead-")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        environment["OMP_NUM_THREADS"] = "1"
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by output)
        self.started = time.time()
        self.processes = [
            subprocess.Popen(
                command,
                cwd=self.folder.name,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if first else subprocess.DEVNULL,
                stderr=self.errors,
            )
            for first, command in commands(variant, nodes, per_node, arguments)
        ]

    def output(self) -> str:
        """Standard output of rank 0's node, after the end of all; raises RuntimeError where the job failed."""
        pipe = self.processes[0].stdout
        assert pipe is not None
        text = pipe.read().decode(errors="replace")
        codes = [process.wait() for process in self.processes]
        self.errors.seek(0)
        errors = self.errors.read().decode(errors="replace")
        self.errors.close()
        self.folder.cleanup()
        if any(codes):
            raise RuntimeError(f"the measured job ended with {codes}:\n{errors[-3000:]}")
        return text

    def tree(self) -> list[psutil.Process]:
        roots = [psutil.Process(process.pid) for process in self.processes]
        return roots + [child for root in roots for child in root.children(recursive=True)]


def commands(variant: str, nodes: int, per_node: int, arguments: list[str]) -> Iterator[tuple[bool, list[str]]]:
    """Command lines of one run, each with whether it is the first: plain torchrun takes one for every node."""
    job = [str(JOB), *arguments]
    if variant != "torchrun":
        side = variant.removeprefix("worker-side ")
        options = ["--nodes", str(nodes), "--nproc-per-node", str(per_node), "--worker-side", side]
        yield True, [sys.executable, "-m", "distdbg", "launch", *options, *job]
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for node in range(nodes):
        rendezvous = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", f"run{port}"]
        options = ["--nnodes", str(nodes), "--nproc-per-node", str(per_node), "--local-addr", "127.0.0.1"]
        yield node == 0, [sys.executable, "-m", "torch.distributed.run", *options, *rendezvous, *job]


# --- command to first step -------------------------------------------------------------------------------------------


def measure_start(variant: str) -> dict[str, float]:
    """Wall and CPU seconds from the command to the end of the first step, 2 nodes of 1 rank."""
    with tempfile.TemporaryDirectory() as folder:
        fifo_path, let_go = Path(folder, "first-step"), Path(folder, "let-go")
        os.mkfifo(fifo_path)
        os.mkfifo(let_go)
        run = Run(variant, 2, 1, ["first-step", str(fifo_path), str(let_go)])
        tell_of_its_end(run, fifo_path)
        first_step = float(fifo_path.read_text())
        cpu = sum(sum(process.cpu_times()[:4]) for process in run.tree())  # own and waited-for children's
        let_go.write_text("go")
        run.output()
    return {"wall_s": first_step - run.started, "cpu_s": cpu, "end_s": time.time() - first_step}


def tell_of_its_end(run: Run, fifo: Path) -> None:
    """A job that fails before it tells would leave us reading the FIFO for ever: its end writes there, too."""

    def watch() -> None:
        for process in run.processes:
            process.wait()
        with contextlib.suppress(OSError), fifo.open("w") as opened:
            opened.write("nan")

    threading.Thread(target=watch, daemon=True).start()


# --- cost per step ---------------------------------------------------------------------------------------------------


def measure_steps(variant: str, count: int, work: int) -> dict[str, float]:
    """First decile and median of the wall time, and mean CPU time of a step of one rank, in microseconds."""
    output = Run(variant, 1, 1, ["steps", str(count), str(work)]).output()
    measured: dict[str, float] = json.loads(output[output.index("{") : output.index("}") + 1])
    return measured


def calibrate() -> dict[str, tuple[int, int]]:
    """How many units of work make the steps of the budget: name -> (steps a run, units)."""
    output = Run("torchrun", 1, 1, ["calibrate"]).output()
    timing = json.loads(output[output.index("{") : output.index("}") + 1])
    units = {
        name: max(0, round((wanted - timing["bare_s"]) / timing["unit_s"]))
        for name, wanted in {"0.5 ms": 5e-4, "5 ms": 5e-3}.items()
    }
    return {"0.5 ms": (6000, units["0.5 ms"]), "5 ms": (800, units["5 ms"])}


# --- memory and CPU of launcher and agents ---------------------------------------------------------------------------


def kind_of(process: psutil.Process) -> str:
    line = " ".join(process.cmdline())
    if "agent.py" in line:
        return "agent"
    if "torch.distributed.run" in line:
        return "torchrun"
    if "-m distdbg launch" in line:
        return "launcher"
    return "rank" if str(JOB) in line else "other"


def measure_memory(variant: str, arguments: list[str]) -> dict[str, float]:
    """Peak resident MB of the largest process of each kind, and what all of a kind took of CPU seconds."""
    run = Run(variant, 2, 1, arguments)
    peaks: dict[str, float] = defaultdict(float)
    cpu: dict[str, dict[int, float]] = defaultdict(dict)
    drain = threading.Thread(target=run.output, daemon=True)
    drain.start()
    while all(process.poll() is None for process in run.processes):
        for process in run.tree():
            with contextlib.suppress(psutil.Error, OSError):  # it may end while we look
                kind, peak = kind_of(process), peak_rss(process.pid) / 1e6
                if not peak:
                    continue  # a zombie
                peaks[kind] = max(peaks[kind], peak)
                cpu[kind][process.pid] = sum(process.cpu_times()[:2])
        time.sleep(0.05)
    drain.join()
    if any(codes := [process.wait() for process in run.processes]):
        raise RuntimeError(f"the measured job {arguments} ended with {codes}")
    figures = {f"{kind} MB": peak for kind, peak in sorted(peaks.items())}
    return figures | {f"{kind} cpu_s": sum(each.values()) for kind, each in sorted(cpu.items())}


def peak_rss(pid: int) -> int:
    """VmHWM: the kernel's own high-water mark, so that looking rarely misses nothing but the last moment."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


# --- rounds, table, budget -------------------------------------------------------------------------------------------


def interleave(rounds: int, measure: Callable[[str], dict[str, float]]) -> dict[str, dict[str, list[float]]]:
    """variant -> quantity -> one value a round. The order turns, so that no variant is always the first."""
    values: dict[str, dict[str, list[float]]] = {variant: defaultdict(list) for variant in VARIANTS}
    for number in range(rounds):
        turn = number % len(VARIANTS)
        for variant in VARIANTS[turn:] + VARIANTS[:turn]:
            for quantity, value in once_more(measure, variant).items():
                values[variant][quantity].append(value)
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return values


def once_more(measure: Callable[[str], dict[str, float]], variant: str) -> dict[str, float]:
    """gloo aborts now and then at interpreter exit, under any launcher: one failure is said, the second is raised."""
    try:
        return measure(variant)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return measure(variant)


def compare(values: dict[str, dict[str, list[float]]], digits: int) -> dict[str, dict[str, float]]:
    """Median of each variant, and median and quartiles of its paired difference to plain torchrun, also as a table."""
    summary: dict[str, dict[str, float]] = {}
    for variant, quantities in values.items():
        figures = summary[variant] = {}
        cells = []
        for quantity, series in quantities.items():
            paired = [ours - plain for ours, plain in zip(series, values["torchrun"][quantity], strict=True)]
            low, middle, high = statistics.quantiles(paired, method="inclusive") if len(paired) > 1 else paired * 3
            figures |= {quantity: statistics.median(series), f"{quantity} more": middle}
            figures |= {f"{quantity} more, quartile 1": low, f"{quantity} more, quartile 3": high}
            spread = f"({middle:+.{digits}f}; {low:+.{digits}f} to {high:+.{digits}f})"
            cells.append(f"{quantity} {figures[quantity]:.{digits}f} {spread if variant != 'torchrun' else ''}")
        summary[variant] = figures
        print(f"  {variant:<16} " + "   ".join(cells), flush=True)
    return summary


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="start, steps, memory (all)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write every value here")
    parser.add_argument("--check", action="store_true", help="exit code 1 where the budget is exceeded")
    args = parser.parse_args()
    parts = args.parts or ["start", "steps", "memory"]
    result: dict[str, object] = {"cpus": os.cpu_count(), "rounds": args.rounds}
    over: list[str] = []

    if "start" in parts:
        print("from command to first step, 2 nodes x 1 rank")
        values = interleave(args.rounds, measure_start)
        summary = compare(values, digits=2)
        result["start"] = {"values": values, "summary": summary}
        for quantity in ("wall_s", "cpu_s"):
            more, plain = summary["worker-side on"][f"{quantity} more"], summary["torchrun"][quantity]
            if more > max(START_S, START_SHARE * plain):
                over.append(f"start: {more:+.2f} {quantity} on top of {plain:.2f}")
    if "steps" in parts:
        for name, (count, work) in calibrate().items():
            print(f"a step of {name}, 1 rank")
            values = interleave(args.rounds, lambda variant, c=count, w=work: measure_steps(variant, c, w))  # type: ignore[misc]
            summary = compare(values, digits=1)
            result[f"step {name}"] = {"values": values, "summary": summary}
            if (more := summary["worker-side on"]["wall_us more"]) > STEP_BUDGET_US[name]:
                over.append(f"step of {name}: {more:+.1f} us")
    if "memory" in parts:
        for what, arguments in {"20 s of steps": ["sleep", "20"], "a rank prints 200 MB": ["print", "200"]}.items():
            print(f"peak resident memory and CPU: {what}, 2 nodes x 1 rank")
            memory = {variant: measure_memory(variant, arguments) for variant in ("torchrun", "worker-side on")}
            for variant, figures in memory.items():
                print(f"  {variant:<16} " + "   ".join(f"{name} {value:.1f}" for name, value in figures.items()))
            result[f"memory: {what}"] = memory
            ours = {kind: memory["worker-side on"].get(kind, float("inf")) for kind in ("launcher MB", "agent MB")}
            over += [f"{what}: {kind} {peak:.1f}" for kind, peak in ours.items() if peak > RSS_BUDGET_MB]

    result["over budget"] = over
    print("over budget: " + ("; ".join(over) or "nothing"))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if over and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
