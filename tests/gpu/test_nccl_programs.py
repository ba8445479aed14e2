"""Every program of tests/programs/nccl on simulated GPUs: launched once, diagnosed by every route.

A program's docstring has its verdict, `Verdict: one-id|another; ranks: 1-2; says: file.py:19; side: host; module:
layers.3; phase: backward; code: 1 of rank 2`, or `none` or `unknown`. With `Hang:` in place of `Verdict:` torch's own
timeout ends the job: the verdict while it lives and that at its end must be this one, and the same ranks must follow
from what torch left, its flight recorders alone, the logs alone, both, or the run without its dumps. `Without stacks:
unknown by logs`, or by recorders, says where less is known. `Slow:` is a warning of a job that ends well. `Ranks:` (3),
`Devices:` (as many), `Options:` of launch and `Fault:` lines for the plan of the GPU box are optional.

With the newest torch, whose default backend for CUDA is nccl2, the verdicts are the same but for NCCL2_DIFFERS,
and logs name nobody.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpu_box.build import TESTED
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


def _launched(request, tmp_path_factory, test, torch):
    """program -> future of its end; all that are selected run side by side."""
    wanted = [i.callspec.params["path"] for i in request.session.items if getattr(i, "function", None) is test]
    folders = {path: tmp_path_factory.mktemp(path.stem) for path in wanted}
    pool = ThreadPoolExecutor(_AT_ONCE)
    yield {path: (pool.submit(Program(path).launch, folder, torch), folder) for path, folder in folders.items()}
    pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def finished(request, tmp_path_factory):
    yield from _launched(request, tmp_path_factory, test_nccl, need_box())


@pytest.fixture(scope="module")
def finished_nccl2(request, tmp_path_factory):
    yield from _launched(request, tmp_path_factory, test_nccl2, need_box(TESTED[-1]))


def _compare(path, finished, wanted):
    future, folder = finished[path]
    done = future.result()
    assert not processes_of(folder)
    for route, report in reports(wanted, done):
        assert not check(wanted, route, report), json.dumps(report, indent=1) + done.err


@pytest.mark.breadth(by=verdict_of)
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_nccl(path, finished):
    _compare(path, finished, Program(path).wanted)


@pytest.mark.breadth(by=verdict_of)
@pytest.mark.parametrize("path", [p for p in PROGRAMS if p.stem not in NCCL2_DIFFERS], ids=lambda p: p.stem)
def test_nccl2(path, finished_nccl2):
    _compare(path, finished_nccl2, Program(path).wanted.of_nccl2())
