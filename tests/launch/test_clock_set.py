"""The clock of the machine is set while the job runs: no duration is made up of it."""

import json

import pytest

from tests.launch.test_endings import plant

pytestmark = pytest.mark.slow

STEP = """
import os, sys, time
real = time.time
if "distdbg" in sys.orig_argv or any(word.endswith("/agent.py") for word in sys.orig_argv):
    time.time = lambda: real() + ({by_s} if os.path.exists("{flag}") else 0)
"""


@pytest.mark.parametrize("by_s", [7200, -7200])
def test_duration_of_a_run_whose_clock_was_set_is_measured_otherwise(distdbg, tmp_path, by_s):
    env = plant(tmp_path, STEP.format(by_s=by_s, flag=tmp_path / "set"))
    (tmp_path / "train.py").write_text("import time\ntime.sleep(1.5)\nopen('set', 'w').close()\ntime.sleep(3)\n")
    done = distdbg("launch", "train.py", env=env)
    assert done.code == 0, done
    report = json.loads(done.run.report_json.read_text())
    assert 4 < report["run"]["ended"] - report["run"]["started"] < 100
    (unknown,) = report["unknown"]
    assert unknown["what"] == "durations by the clock of node 0"
    assert abs(float(unknown["because"].split("set by ")[1].split()[0]) - by_s) < 2, unknown
