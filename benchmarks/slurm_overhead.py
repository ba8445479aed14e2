"""What `distdbg launch` costs over `srun torchrun` on 16 nodes of one machine: wall time and CPU, pair by pair.

    sudo .venv/bin/python benchmarks/slurm_overhead.py [--nodes 16] [--pairs 7] [--check]

Each pair runs both, in turns, with a script that joins a gloo group and leaves; a first pair, which fills caches, does
not count. CPU seconds are those of all hosts' processes together, read where the kernel sums them up. `--check` fails
above 10 % or 1 s, whichever is more.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.cluster.bed import Bed
from tests.cluster.fixtures import own_folder
from tests.cluster.slurm import Slurm

_CGROUP_1 = Path("/sys/fs/cgroup/cpuacct/distdbg-benchmark")
_CGROUP_2 = Path("/sys/fs/cgroup/distdbg-benchmark")

SCRIPT = """
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
dist.destroy_process_group()
"""


def _own_meter() -> Callable[[], float]:
    """What reads the CPU seconds of this process and all that it starts: a cgroup of their own, if one may be made.

    A cluster's daemons are no children of ours, and a parent does not learn what grandchildren used. Elsewhere they are
    the whole machine's seconds, which are ours only while nobody else works.
    """
    for folder, file, unit in ((_CGROUP_1, "cpuacct.usage", 1e9), (_CGROUP_2, "cpu.stat", 1e6)):
        try:
            folder.mkdir(exist_ok=True)
            (folder / "cgroup.procs").write_text(str(os.getpid()))
            _sum(folder / file)
        except OSError:
            continue
        return partial(lambda path, unit: _sum(path) / unit, folder / file, unit)
    print("no cgroup may be made here: the CPU seconds are the whole machine's")
    return _machine_s


def _sum(path: Path) -> int:
    return int(path.read_text().split()[-1 if path.name == "cpuacct.usage" else 1])


def _machine_s() -> float:
    words = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _, _, irq, soft = map(int, words[:7])
    return (user + nice + system + irq + soft) / 100


def _once(bed: Bed, command: list[str], cpu_s: Callable[[], float]) -> tuple[float, float]:
    begun, cpu = time.monotonic(), cpu_s()
    inside = ["sh", "-c", 'cd "$0" && exec "$@"', str(bed.shared), "salloc", "-Q", f"-N{len(bed.nodes)}", *command]
    done = bed.run("head", *inside, env={"PYTHONPATH": str(Path.cwd())}, timeout=900)
    if done.returncode:
        sys.exit(f"{command[0]} failed: {done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return time.monotonic() - begun, cpu_s() - cpu


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    plain = ["srun", "--ntasks-per-node=1", "--kill-on-bad-exit=1", sys.executable, "-m", "torch.distributed.run"]
    plain += ["--nnodes", str(options.nodes), "--rdzv-backend", "c10d", "--rdzv-endpoint", "node1:29400"]
    plain += ["--rdzv-id", "b", "join.py"]
    ours = [sys.executable, "-m", "distdbg", "launch", "--nproc-per-node", "1", "join.py"]
    walls, cpus, base = [], [], []
    cpu_s = _own_meter()
    with Bed(own_folder(), nodes=options.nodes, slurm=Slurm()) as bed:
        (bed.shared / "join.py").write_text(SCRIPT)
        for number in range(-1, options.pairs):
            first, second = (plain, ours) if number % 2 else (ours, plain)
            results = {words[0]: _once(bed, words, cpu_s) for words in (first, second)}
            if number < 0:
                continue
            (wall, cpu), (plain_wall, plain_cpu) = results[ours[0]], results["srun"]
            walls.append(wall - plain_wall)
            cpus.append(cpu - plain_cpu)
            base.append((plain_wall, plain_cpu))
            more = f"{walls[-1]:+.1f} s, CPU {plain_cpu:.1f} s {cpus[-1]:+.1f} s"
            print(f"pair {number + 1}: wall {plain_wall:.1f} s {more}", flush=True)
    wall, cpu = median(w for w, _ in base), median(c for _, c in base)
    more_wall, more_cpu = median(walls), median(cpus)
    ours_is = f"{more_wall:+.1f} s wall ({more_wall / wall:+.0%}), {more_cpu:+.1f} s CPU ({more_cpu / cpu:+.0%})"
    what = f"{options.nodes} nodes, median of {options.pairs} pairs"
    print(f"{what}: srun torchrun {wall:.1f} s wall, {cpu:.1f} s CPU; distdbg {ours_is}")
    over = more_wall > max(1.0, wall / 10) or more_cpu > max(1.0, cpu / 10)
    return int(options.check and over)


if __name__ == "__main__":
    sys.exit(main())
