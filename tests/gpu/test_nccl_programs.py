"""Every program of tests/programs/nccl on simulated GPUs: launched once, diagnosed by every route.

A program's docstring has its verdict, `Verdict: one-id|another; ranks: 1-2; says: file.py:19; side: host; module:
layers.3; phase: backward; code: 1 of rank 2`, or `none` or `unknown`. With `Hang:` in place of `Verdict:` torch's own
timeout ends the job: the verdict while it lives and that at its end must be this one, and the same ranks must follow
from what torch left, its flight recorders alone, the logs alone, both, or the run without its dumps. `Without stacks:
unknown by logs`, or by recorders, says where less is known. `Slow:` is a warning of a job that ends well. `Ranks:` (3),
`Devices:` (as many), `Options:` of launch and `Fault:` lines for the plan of the GPU box are optional.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import processes_of
from tests.gpu.nccl_program import Program, check, reports
from tests.gpu_box.fixtures import need_box

PROGRAMS = sorted((Path(__file__).parents[1] / "programs" / "nccl").glob("*.py"))
#: They mostly wait: three at once keep two cores busy.
_AT_ONCE = 3

# One worker of pytest-xdist runs them all: they share what was started side by side.
pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.xdist_group("nccl programs")]


@pytest.fixture(scope="module")
def finished(request, tmp_path_factory):
    """program -> future of its end; all that are selected run side by side."""
    torch = need_box()
    wanted = [i.callspec.params["path"] for i in request.session.items if getattr(i, "function", None) is test_nccl]
    folders = {path: tmp_path_factory.mktemp(path.stem) for path in wanted}
    pool = ThreadPoolExecutor(_AT_ONCE)
    yield {path: (pool.submit(Program(path).launch, folder, torch), folder) for path, folder in folders.items()}
    pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_nccl(path, finished):
    wanted = Program(path).wanted
    future, folder = finished[path]
    done = future.result()
    assert not processes_of(folder)
    for route, report in reports(wanted, done):
        assert not check(wanted, route, report), json.dumps(report, indent=1) + done.err
