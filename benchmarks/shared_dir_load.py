"""How often the agents of a job touch the run directory, which all nodes share: system calls a node and second.

    python benchmarks/shared_dir_load.py [--nodes 2] [--seconds 60]

A job is launched by real Slurm on the test bed (root; `make bed`) and trains. strace follows the launcher and every
agent with its threads for a while, and each system call that names a path below the run directory, or a descriptor of
such a file, counts as one operation. An agent polls nothing there: what it writes does not grow with the nodes.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.cluster.bed import Bed
from tests.cluster.fixtures import own_folder
from tests.cluster.jobs import jobs
from tests.cluster.slurm import Slurm

_CALL = re.compile(r"^\d+ +(\w+)\(")


def followed(pid: int, seconds: float, path: str) -> Counter[str]:
    """System calls by name that concern `path`."""
    out = Path(f"/tmp/strace-{pid}")
    command = ["strace", "-f", "-y", "-e", "trace=%file,%desc", "-o", str(out), "-p", str(pid)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    time.sleep(seconds)
    process.terminate()
    process.wait()
    lines = [line for line in out.read_text(errors="replace").splitlines() if path in line]
    out.unlink()
    return Counter(found[1] for line in lines if (found := _CALL.match(line)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    with Bed(own_folder(), nodes=options.nodes, slurm=Slurm()) as bed, jobs(bed) as launch:
        job = launch("--nodes", str(options.nodes), inside=("salloc", "-Q", f"-N{options.nodes}"))
        job.trains(ranks=2 * options.nodes)
        time.sleep(5)
        asked = {"launcher": job.launcher()} | {f"agent of {n.name}": job.agent(n.name) for n in bed.nodes}
        for name, pid in asked.items():
            calls = followed(pid, options.seconds, str(job.run.path))
            rate = calls.total() / options.seconds
            print(f"{name:16} {rate:6.3f} a second  {dict(calls.most_common())}", flush=True)


if __name__ == "__main__":
    main()
