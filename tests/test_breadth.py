"""The sample of `make test` has every guard, healthy programs of each, and every finding of the programs that hang."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.breadth import guard_and_kind, verdict_of

PROGRAMS = Path(__file__).parent / "programs"

pytestmark = pytest.mark.slow


def collected(*options: str) -> set[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", *options]
    files = ("tests/test_guards.py", "tests/test_hangs.py")
    done = subprocess.run([*command, *files], capture_output=True, text=True, check=True, cwd=PROGRAMS.parents[1])
    return {line.rpartition("[")[2].rstrip("]") for line in done.stdout.splitlines() if "[" in line}


def test_the_sample_has_each_kind_and_all_has_every_case():
    sample, whole = collected(), collected("--all")
    guards = sorted(PROGRAMS.glob("guards/*/*.py"))
    hangs = sorted(PROGRAMS.glob("hangs/*.py"))
    assert whole == {f"{p.parent.name}/{p.stem}" for p in guards} | {p.stem for p in hangs}
    assert sample < whole
    assert {guard_and_kind(p) for p in guards if f"{p.parent.name}/{p.stem}" in sample} == set(
        map(guard_and_kind, guards)
    )
    assert {verdict_of(p) for p in hangs if p.stem in sample} == set(map(verdict_of, hangs))


def test_cases_that_are_chosen_are_run():
    assert len(collected("-k", "test_hang")) == len(list(PROGRAMS.glob("hangs/*.py")))
