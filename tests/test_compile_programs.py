"""Every program under tests/programs/compile gets, under --watch compile, the finding that its docstring promises.

All of them run in one pair of ranks; one goes through the command, with and without compilation.
"""

import json
import re
from pathlib import Path

import pytest

from distdbg.launch.replay.guard_trial import run_trials
from distdbg.worker.watch import VARIABLE

PROGRAMS = sorted((Path(__file__).parent / "programs" / "compile").glob("*.py"))
_PROMISE = re.compile(r"^Compile: (?P<id>[\w-]+)(?:; says: (?P<says>.+))?$", re.M)


@pytest.fixture(scope="module")
def trials():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, "compile")
        return {trial.program: trial for trial in run_trials(PROGRAMS)}


@pytest.mark.slow
@pytest.mark.xdist_group("compile-programs")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_compile(program, trials):
    wanted = _PROMISE.search(program.read_text())
    assert wanted, f"{program} promises nothing"
    assert not trials[program].trouble
    found = [f for f in trials[program].findings if f.id in ("graph-break", "recompile") and f.severity != "info"]
    assert [f.id for f in found] == ([] if wanted["id"] == "none" else [wanted["id"]]), found
    for finding in found:
        assert finding.ranks == (0, 1)
        assert wanted["says"] in f"{finding.summary} {finding.cause}", finding


@pytest.mark.slow
def test_the_command_compares_with_the_same_script_uncompiled(distdbg):
    program = next(p for p in PROGRAMS if p.stem == "good_trains")
    done = distdbg("compile-report", "--compare-eager", "--json", "--nproc-per-node", "1", program, timeout=120)
    result = json.loads(done.out)
    assert done.code == 0, done
    assert (result["schema"], result["graphs"], result["graph_breaks"], result["recompiles"]) == (
        "distdbg.compile/1",
        1,
        [],
        [],
    )
    assert result["seconds"] > 0
    assert result["step_ms"]["steps"] >= 10
    assert result["eager_step_ms"]["steps"] >= 10
    assert (result["losses"]["compared"], result["unknown"]) == (20, [])
    assert result["losses"]["largest_relative_difference"] < 1e-5
