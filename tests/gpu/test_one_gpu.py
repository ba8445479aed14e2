"""What only a GPU shows: CUDA's errors, torch's allocator, NCCL's recorder. One device is enough."""

from __future__ import annotations

import json

import pytest

from distdbg.rundir import list_runs
from tests.gpu.conftest import BEGIN, END, STEP

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.one_gpu]


@pytest.fixture
def launch(gpus):
    return lambda body, *words, **options: gpus(**options).launch(BEGIN + body, *words)


def test_a_healthy_job_gets_nothing(launch):
    done, report = launch(f"for step in range(200):{STEP}\n{END}")
    assert (done.code, report["outcome"], report["findings"]) == (0, "succeeded", []), done


def test_a_module_that_makes_nan_is_named_a_step_later(launch, tmp_path):
    """The box computes values in its shadow mode only."""
    body = f"""
bad = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).cuda()
for step in range(200):{STEP}
    if step == 100:
        with torch.no_grad():
            next(model.parameters()).fill_(float("nan"))
{END}"""
    _, report = launch(body, "--watch", "numerics,gradients", "--on-nonfinite", "dump", shadow=True)
    assert [f["id"] for f in report["findings"] if f["id"] == "non-finite"], report
    rank = list_runs(tmp_path / "distdbg-runs")[-1].attempt(1).rank(0)
    assert (rank.nonfinite / "batch.pt").is_file() and (rank.nonfinite / "state.pt").is_file()
    norms = [json.loads(line)["gradient"] for line in rank.gradients.read_text().splitlines()]
    assert len(norms) > 5 and all(norms[0]), "each line is sent when its figures have come"


def test_a_rank_that_waits_on_the_host_is_explained_with_nccls_recorder(launch):
    hang = f"for step in range(50):{STEP}\nprint('waits', flush=True)\nwhile True:\n    time.sleep(1)\n"
    done, report = launch(hang, "--hang-timeout", "8", "--on-hang", "kill", "--grace", "3")
    assert done.code == 75, done
    assert report["findings"][0]["id"] == "stuck-in-python" and report["findings"][0]["ranks"] == [0], report
    assert not [u for u in report["unknown"] if "recorder" in u["what"]], report["unknown"]
