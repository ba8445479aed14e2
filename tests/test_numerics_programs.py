"""Every program under tests/programs/numerics gets the finding that its docstring promises, and no other.

All of them run in one pair of ranks; one is launched, from the command line to the report.
"""

import json
import re
from pathlib import Path

import pytest

from distdbg.launch.replay.guard_trial import run_trials
from distdbg.model import fold_ranks
from distdbg.worker.watch import VARIABLE

PROGRAMS = sorted((Path(__file__).parent / "programs" / "numerics").glob("*.py"))
_PROMISE = re.compile(
    r"^Numerics: (?P<id>[\w-]+)(?:; (?P<severity>\w+); ranks: (?P<ranks>[\d,-]+); says: (?P<says>.+))?$", re.M
)

IDS = ("non-finite", "exploding-gradient", "vanishing-gradient", "dead-units")


@pytest.fixture(scope="module")
def trials():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, "numerics,gradients")
        return {trial.program: trial for trial in run_trials(PROGRAMS)}


@pytest.mark.slow
@pytest.mark.xdist_group("numerics-programs")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_numerics(program, trials):
    wanted = _PROMISE.search(program.read_text())
    assert wanted, f"{program} promises nothing"
    assert not trials[program].trouble
    found = [finding for finding in trials[program].findings if finding.id in IDS]
    assert [f.id for f in found] == ([] if wanted["id"] == "none" else [wanted["id"]]), found
    for finding in found:
        assert finding.severity == wanted["severity"], finding
        assert fold_ranks(finding.ranks) == wanted["ranks"], finding
        assert wanted["says"] in finding.summary, finding


@pytest.mark.slow
def test_the_launch_says_it_and_leaves_the_exit_code(distdbg):
    program = next(p for p in PROGRAMS if p.stem == "nan_in_data")
    levels = ("--watch", "numerics,gradients,shapes", "--on-nonfinite", "dump")
    done = distdbg("launch", *levels, "--nproc-per-node", "2", program, timeout=120)
    report = json.loads(done.run.report_json.read_text())
    assert done.code == 0, done.err
    assert report["outcome"] == "succeeded"
    (found,) = [f for f in report["findings"] if f["id"] == "non-finite"]
    assert (found["severity"], found["ranks"], found["step"]) == ("error", [1], 3)
    assert "1 NaN of 32" in found["cause"]
    first, second = (done.run.attempt(1).rank(rank) for rank in (0, 1))
    assert "float32[4, 8]" in first.shapes.read_text() and "ranks/00000/shapes.txt" in done.err
    assert first.gradients.is_file() and not second.gradients.exists(), "both have the same"
    assert f"ranks/00001/{second.nonfinite.name}" in found["cause"]
    assert not (second.nonfinite / "model.pkl").exists(), "the model is rank 0's"
    again = distdbg("replay", second.nonfinite, "--json", timeout=120)
    assert again.code == 10, again.err
    assert "the batch already held" in json.loads(again.out)["findings"][0]["summary"]


@pytest.mark.slow
def test_a_script_asks_for_it_by_itself_before_torch_is_there(distdbg, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import distdbg\ndistdbg.watch()\nimport torch\nmodel = torch.nn.Linear(2, 1)\ndistdbg.watch(model)\n"
        "optimizer = torch.optim.SGD(model.parameters())\n"
        "y = model(torch.tensor([[1.0, float('inf')]]))\n(y * y).sum().backward()\noptimizer.step()\n"
    )
    done = distdbg("launch", "--nproc-per-node", "1", script, timeout=120)
    report = json.loads(done.run.report_json.read_text())
    (found,) = [f for f in report["findings"] if f["id"] == "non-finite"]
    assert "the batch already held" in found["summary"], found
    assert "train.py:8" in found["cause"], found
