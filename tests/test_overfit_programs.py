"""Every program under tests/programs/overfit gets, its first batch repeated, the verdict that its docstring promises.

All of them run in one pair of ranks; one is launched, from the command line to the exit code.
"""

import json
import re
from pathlib import Path

import pytest

from distdbg.launch.replay.guard_trial import run_trials
from distdbg.worker.overfit import VARIABLE

PROGRAMS = sorted((Path(__file__).parent / "programs" / "overfit").glob("*.py"))
_PROMISE = re.compile(r"^Overfit: (?P<verdict>\w+); says: (?P<says>.+)$", re.M)


@pytest.fixture(scope="module")
def trials():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, "60")
        return {trial.program: trial for trial in run_trials(PROGRAMS)}


@pytest.mark.slow
@pytest.mark.xdist_group("overfit-programs")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_overfit(program, trials):
    wanted = _PROMISE.search(program.read_text())
    assert wanted, f"{program} promises nothing"
    assert not trials[program].trouble
    (found,) = [finding for finding in trials[program].findings if finding.id.startswith("overfit-")]
    assert found.id == f"overfit-{wanted['verdict']}", found
    assert found.ranks == (0, 1)
    assert wanted["says"] in f"{found.summary} {found.cause}", found


@pytest.mark.slow
def test_the_command_says_it_and_makes_the_exit_code(distdbg):
    program = next(p for p in PROGRAMS if p.stem == "bad_other_model")
    done = distdbg("overfit", "--overfit-batch", "20", "--nproc-per-node", "1", program, timeout=120)
    report = json.loads(done.run.report_json.read_text())
    assert done.code == 10, done
    assert (report["outcome"], report["exit_code"]) == ("succeeded", 0)
    (found,) = [f for f in report["findings"] if f["id"].startswith("overfit-")]
    assert (found["id"], found["severity"], found["step"]) == ("overfit-fails", "error", 20)
    assert "THE FIRST BATCH IS REPEATED for 20 steps" in done.err
    assert "did not move" in done.err
