"""Every program under tests/programs/guards: the one with the mistake is found out, those that look like it are not.

A guard's test is files, no code: a folder with the id's name, in it bad.py and good_*.py.
"""

from pathlib import Path

import pytest

from distdbg.launch.replay.guard_trial import run_trials
from distdbg.worker.guards import guard_classes
from tests.breadth import guard_and_kind

PROGRAMS = sorted((Path(__file__).parent / "programs" / "guards").glob("*/*.py"))


@pytest.fixture(scope="module")
def trials(request):
    """All programs that are selected, in one pair of ranks."""
    wanted = [i.callspec.params["program"] for i in request.session.items if getattr(i, "function", None) is test_guard]
    return {trial.program: trial for trial in run_trials(wanted)}


@pytest.mark.slow
@pytest.mark.xdist_group("guards")
@pytest.mark.timeout(1800)  # the first waits for all programs, beside hangs and NCCL programs
@pytest.mark.breadth(by=guard_and_kind)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_guard(program, trials):
    assert trials[program].complaint == ""


def test_every_guard_has_a_program_with_the_mistake_and_two_that_look_like_it():
    for guard in guard_classes():
        names = [p.stem for p in PROGRAMS if p.parent.name == guard.id]
        assert any(name.startswith("bad") for name in names), f"{guard.id}: no bad.py"
        assert sum(name.startswith("good_") for name in names) >= 2, f"{guard.id}: fewer than two good_*.py"
