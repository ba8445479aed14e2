"""Every program under tests/programs/healthy_slow is left alone: not called hung, not looked at, no fault found."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import environment_in, nodes_of, processes_of
from tests.launch.watch.test_hang import Launch

HEALTHY = sorted((Path(__file__).parents[1] / "programs" / "healthy_slow").glob("*.py"))
#: Quiet for five times as long and more, and excused whatever the timeout: bytes move, or all ranks compute.
EXCUSED = {"long_checkpoint", "downloads_in_a_child", "prints_a_lot", "long_evaluation", "slow_first_step",
           "builds_an_extension"}  # fmt: skip
#: No step, or no collective of some ranks, for much longer than this; but some rank is heard in between.
HEARD = {"gradient_accumulation": 5, "many_short_steps": 5, "uneven_subgroups": 5, "pipeline_with_bubbles": 5,
         "joined_inputs": 8}  # fmt: skip
#: Quiet for longer than an `auto` that is never under 12 s would wait, had it learnt nothing and had no patience.
LEARNT = {"pauses_between_epochs", "recompiles_in_the_middle"}
_AT_LEAST_12_S = (
    "import distdbg.diagnosis.timeline.liveness as s; s.LEAST_S = 12.0; from distdbg.cli import main; main()"
)
#: They mostly wait.
_AT_ONCE = 2

# One worker of pytest-xdist runs them all: they share what was started side by side.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("healthy-slow")]


def run(program, folder):
    timeout = 3 if program.stem in EXCUSED else HEARD.get(program.stem, "auto")
    how = ("-c", _AT_LEAST_12_S) if program.stem in LEARNT else ("-m", "distdbg")
    words = "--hang-timeout", timeout, program
    job = Launch(folder, *words, command=(sys.executable, *how), nodes=nodes_of(program), env=environment_in(folder))
    job.finish(200)
    return job


@pytest.fixture(scope="module")
def finished(request, tmp_path_factory):
    """program -> future of its end."""
    wanted = [
        i.callspec.params["program"] for i in request.session.items if getattr(i, "function", None) is test_healthy
    ]
    folders = {program: tmp_path_factory.mktemp(program.stem) for program in wanted}
    pool = ThreadPoolExecutor(_AT_ONCE)
    yield {program: pool.submit(run, program, folder) for program, folder in folders.items()}
    pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("program", HEALTHY, ids=lambda p: p.stem)
def test_healthy(program, finished):
    job = finished[program].result()
    assert job.code == 0, job.said
    assert not job.events("stalled", "dump", "timeout-near"), job.events("stalled", "dump", "timeout-near")
    assert all(dump.name.endswith("-busy") for dump in job.dumps()), "a line on the terminal, on a slow machine"
    assert "no rank has moved" not in job.said
    assert job.report()["findings"] == []
    assert job.report()["outcome"] == "succeeded"
    assert not processes_of(job.folder)
