"""Faults on two hosts under real Slurm: how long until the cause is named, until the job has ended, with which code.

    sudo .venv/bin/python benchmarks/faults_across_nodes.py          the table of docs/faults.md, about ten minutes

Needs root and `make bed`. The hosts are tests/cluster's: namespaces on one machine, Slurm's own daemons. Group
timeouts are torch's own 30 minutes; the kernel's TCP settings are Linux's own.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.cluster.bed import Bed
from tests.cluster.fixtures import own_folder
from tests.cluster.jobs import TRAIN, Job, jobs, nothing_is_left
from tests.cluster.slurm import Slurm

_EARLY = TRAIN.replace("raise ValueError(", "sys.exit(0) #")
_CLEANS_UP = TRAIN.replace("    model(torch", "    model(torch").replace(
    'raise ValueError("a value that nobody expected")',
    """
        try:
            raise ValueError("a value that nobody expected")
        finally:
            time.sleep(3)
""".strip(),
)
_SHORT = TRAIN.replace('"gloo")', '"gloo", timeout=__import__("datetime").timedelta(seconds=20))')
#: The allocation stands, and the launch waits until somebody lets it.
_HELD = ("salloc", "-Q", "-N2", "sh", "-c", 'touch held; until [ -e go ]; do sleep 0.1; done; exec "$@"', "sh")
_SEVEN = TRAIN.replace("raise ValueError(", "os._exit(7) #")


@dataclass(frozen=True)
class Fault:
    name: str
    strike: Callable[[Bed, Job], None] | None
    #: "" where the job goes on, and has none
    finding: str
    ranks: list[int]
    code: int
    args: tuple[str, ...] = ()
    train: str = TRAIN
    steps: int = 100_000
    env: Mapping[str, str] = field(default_factory=dict)
    #: the fault comes before the launch
    first: bool = False


def _rank(number: int, signum: int) -> Callable[[Bed, Job], None]:
    """Two ranks a host, started in the order of their numbers."""

    def strike(bed: Bed, _job: Job) -> None:
        pids = sorted(bed[f"node{1 + number // 2}"].pids_of("boot.py train.py", but="torch.distributed.run"))
        os.kill(pids[number % 2], signum)

    return strike


def _agent(host: str, signum: int) -> Callable[[Bed, Job], None]:
    return lambda _bed, job: os.kill(job.agent(host), signum)


def _healed(bed: Bed, _job: Job) -> None:
    bed.cut("node2")
    time.sleep(5)
    bed.heal("node2")


def _nameless(bed: Bed, _job: Job) -> None:
    """The hosts' names are in nobody's list but the controller's and the daemons', which have read theirs."""
    for name in ("node1", "node2"):
        bed.run(name, "sh", "-c", "echo 127.0.0.1 localhost > /etc/hosts")


FAULTS = (
    Fault("SIGKILL rank 3", _rank(3, signal.SIGKILL), "rank-killed", [3], 137),
    Fault("SIGSTOP rank 3", _rank(3, signal.SIGSTOP), "process-stopped", [3], 75,
          ("--hang-timeout", "10", "--on-hang", "kill", "--grace", "5")),
    Fault("SIGKILL node2's agent", _agent("node2", signal.SIGKILL), "node-lost", [2, 3], 76),
    Fault("SIGKILL node1's agent", _agent("node1", signal.SIGKILL), "node-lost", [0, 1], 76),
    Fault("SIGSTOP an agent, whose ranks finish", _agent("node2", signal.SIGSTOP), "node-lost", [2, 3], 76, steps=400),
    Fault("link down", lambda bed, _: bed.cut("node2"), "network-cut", [2, 3], 76),
    Fault("blackhole", lambda bed, _: bed.blackhole("node2"), "network-cut", [2, 3], 76),
    Fault("link down, group timeout 20 s", lambda bed, _: bed.cut("node2"), "network-cut", [2, 3], 76, train=_SHORT),
    Fault("link down for 5 s", _healed, "", [], 0, steps=1500),
    Fault("node2 never arrives", lambda bed, _: bed.blackhole("node2"), "", [], 2, first=True),
    Fault("no name is resolved", _nameless, "", [], 0, steps=20, first=True),
    Fault("SIGUSR1 to an agent", _agent("node2", signal.SIGUSR1), "", [], 0, steps=400),
    Fault("SIGKILL rank 3, --max-restarts 1", _rank(3, signal.SIGKILL), "", [], 0, ("--max-restarts", "1"), steps=400),
    Fault("host killed", lambda bed, _: bed.kill("node2"), "node-lost", [2, 3], 76),
    Fault("rank 1 exits 7", None, "rank-exception", [1], 7, train=_SEVEN, env={"RAISES": "1"}),
    Fault("rank 1 sys.exit(0) early", None, "rank-exited-early", [1], 1, train=_EARLY, env={"RAISES": "1"}),
    Fault("rank 1 raises, cleans up for 3 s", None, "rank-exception", [1], 1, train=_CLEANS_UP, env={"RAISES": "1"}),
)  # fmt: skip


def _names(fault: Fault) -> tuple[str, ...]:
    """Words on the terminal that name the cause."""
    return f"{fault.finding or 'nothing'}  ", " is lost", " is stopped or stuck", "was stopped"


def measure(fault: Fault) -> str:
    with Bed(own_folder(), nodes=2, slurm=Slurm()) as bed, jobs(bed) as launch:
        inside = {"inside": _HELD} if fault.first else {}
        job = launch(*fault.args, steps=fault.steps, train=fault.train, env=fault.env, **inside)
        if fault.first:
            while not (job.folder / "held").exists():
                time.sleep(0.1)
        elif fault.strike is not None:
            job.trains()
            time.sleep(1)
        if fault.strike is not None:
            fault.strike(bed, job)
        (job.folder / "go").touch()
        return f"| {fault.name} | {_seen(fault, bed, job)}"


def _seen(fault: Fault, bed: Bed, job: Job) -> str:
    struck, named = time.monotonic(), None
    while job.process.poll() is None and time.monotonic() - struck < 150:
        if named is None and any(word in job.said() for word in _names(fault)):
            named = time.monotonic() - struck
        time.sleep(0.1)
    ended = time.monotonic() - struck
    code = job.process.poll()
    try:
        first = (job.report()["findings"] or [{}])[0]
    except ValueError:  # no rank was ever started: a sentence says why
        first = {}
    error = first if first.get("severity") == "error" else {}
    right = (error.get("id", ""), error.get("ranks", []), code) == (fault.finding, fault.ranks, fault.code)
    orphans = "none"
    try:
        nothing_is_left(bed)
    except AssertionError as left:
        orphans = f"LEFT: {left}"
    times = f"{named or ended:.0f} s | {ended:.0f} s" if fault.strike and fault.finding else "– | –"
    found = f"`{error['id']}` {error['ranks']}" if error else "none"
    return f"{times} | {found} | {code} | {orphans} |{'' if right else '  <-- not as expected'}"


def main() -> int:
    wanted = sys.argv[1:]
    columns = ("fault", "named after", "ended after", "finding, ranks", "exit code", "processes left")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    wrong = 0
    for fault in FAULTS:
        if not wanted or any(word in fault.name for word in wanted):
            row = measure(fault)
            wrong += "<--" in row
            print(row, flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
