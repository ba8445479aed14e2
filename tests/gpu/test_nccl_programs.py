"""Every program of tests/programs/nccl on simulated GPUs: launched once, diagnosed by every route.

A program's docstring has its verdict, `Verdict: one-id|another; ranks: 1-2; says: file.py:19; side: host; module:
layers.3; phase: backward; code: 1 of rank 2`, or `none` or `unknown`. With `Hang:` in place of `Verdict:` torch's own
timeout ends the job: the verdict while it lives and that at its end must be this one, and the same ranks must follow
from what torch left, its flight recorders alone, the logs alone, both, or the run without its dumps. `Without stacks:
unknown by logs`, or by recorders, says where less is known. `Slow:` is a warning of a job that ends well. `Ranks:` (3),
`Devices:` (as many), `Options:` of launch and `Fault:` lines for the plan of the GPU box are optional.

Each runs with the backends of BACKENDS. The verdicts are the same, but for those of NCCL2_DIFFERS with nccl2, whose
logs name no rank. On the newest torch the older backend runs a sample; DISTDBG_NCCL_PROGRAMS=all runs all of them.
"""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

from gpu_box.build import OLDER_TORCH, TORCH
from tests.breadth import verdict_of
from tests.conftest import processes_of
from tests.gpu.fixtures import need_box
from tests.gpu.nccl_program import Program, check, reports

PROGRAMS = sorted((Path(__file__).parents[1] / "programs" / "nccl").glob("*.py"))
#: They mostly wait: three at once keep two cores busy.
_AT_ONCE = 3

# One worker of pytest-xdist runs them all: they share what was started side by side.
pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.xdist_group("nccl programs")]


_NO_STARTS = "the recorder of nccl2 has no start times: a device that hangs cannot be told from one that waits"
#: Programs whose verdict differs with nccl2, and why.
NCCL2_DIFFERS = {
    "kernel_never_ends": _NO_STARTS,
    "fsdp_kernel_never_ends": _NO_STARTS,
    "slow_device": _NO_STARTS,
    "batched_transfers": "a batch has no entry that ends it: the verdict is possible and has no side; none offline",
    "host_far_ahead": "at the timeout nccl2 completes the work that the script polls, and nothing ends the job",
    "driver_blocked": "the verdict is stuck-on-device",
    "watchdog_got_stuck": "the verdict is stuck-on-device",
    "heartbeat_monitor_ends_rank": "nothing ends the job",
    "remote_error": "nccl2 ends the process at once: the rank is named, and no side",
}


#: What the older backend records and nccl2 does not, and the most frequent hangs.
_SAMPLE = {*NCCL2_DIFFERS, "one_batch_less", "size_differs", "skips_a_gather", "healthy_graph_replays"}


@dataclass(frozen=True)
class Backend:
    """An implementation of NCCL's process group, in one version of torch."""

    torch: str
    environment: dict[str, str] = field(default_factory=dict)
    is_nccl2: bool = False

    def runs(self, program: str) -> bool:
        """Return whether the suite runs this program with it."""
        if self.is_nccl2:
            return program not in NCCL2_DIFFERS
        return not self.environment or program in _SAMPLE or os.environ.get("DISTDBG_NCCL_PROGRAMS") == "all"


BACKENDS = {
    "nccl2": Backend(TORCH, is_nccl2=True),
    "legacy": Backend(TORCH, {"TORCH_DIST_USE_NCCL2": "0"}),
    f"torch-{OLDER_TORCH}": Backend(OLDER_TORCH),
}


class Case(NamedTuple):
    """A program with the backend that runs it, by its name in BACKENDS."""

    name: str
    path: Path


CASES = [Case(name, path) for name, backend in BACKENDS.items() for path in PROGRAMS if backend.runs(path.stem)]


@pytest.fixture(scope="module")
def launches(request, tmp_path_factory):
    """Return (future of its end, folder) of each selected case; they run side by side."""
    selected = [i.callspec.params["case"] for i in request.session.items if getattr(i, "function", None) is test_nccl]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        started = {}
        for case in selected:
            folder, backend = tmp_path_factory.mktemp(case.path.stem), BACKENDS[case.name]
            launch = pool.submit(Program(case.path).launch, folder, need_box(backend.torch), backend.environment)
            started[case] = launch, folder
        yield started
        pool.shutdown(cancel_futures=True)


@pytest.mark.breadth(by=lambda case: (case.name, verdict_of(case.path)))
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}-{case.path.stem}")
def test_nccl(case, launches):
    launch, folder = launches[case]
    wanted = Program(case.path).wanted
    if BACKENDS[case.name].is_nccl2:
        wanted = wanted.of_nccl2()
    done = launch.result()
    assert not processes_of(folder)
    for route, report in reports(wanted, done):
        assert not check(wanted, route, report), json.dumps(report, indent=1) + done.err
