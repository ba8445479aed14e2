"""Values that no process ends with are no exit status."""

import json

import pytest

from distdbg.evidence.exit_status import exit_status, how_it_ended, implausible, shell_code
from tests.made_run import MadeRun


@pytest.mark.parametrize(
    ("value", "status"),
    [(0, 0), (1, 1), (255, 255), (-9, -9), (-64, -64), (256, None), (-65, None), (-(10**18), None), (True, None),
     (1.0, None), ("1", None), (None, None)],
)  # fmt: skip
def test_what_a_process_can_end_with(value, status):
    assert exit_status({"exit_code": value}) == status
    assert bool(implausible({"exit_code": value})) == (status is None and value is not None)


def test_one_meaning():
    assert [how_it_ended(s) for s in (-9, -40, 3)] == ["SIGKILL", "signal 40", "exit code 3"]
    assert [shell_code(s) for s in (-9, 0, 3)] == [137, 0, 3]


@pytest.mark.parametrize("value", [-(10**18), 10**18, True, 1e300, [9]])
def test_a_run_with_a_value_that_is_none(tmp_path, value):
    run = MadeRun(tmp_path)
    run.exits(1, -9)
    record = json.loads(run.files(1).exit.read_text())
    run.files(1).exit.write_text(json.dumps({**record, "exit_code": value}))
    for rank in (0, 2, 3):
        run.exits(rank, 0)
    run.closes()
    report = run.report()
    state = next(rank.state for rank in report.ranks if rank.rank == 1)
    assert state == "unknown"
    (why,) = [u.because for u in report.unknown if u.what == "exit code of rank 1"]
    assert str(value)[:10] in why
