"""`make gpu-check`: what it says on a machine without a GPU, and what counts as a difference."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.gpu import check


def test_without_a_gpu_it_says_why_and_runs_nothing(tmp_path):
    env = {**os.environ, "PATH": str(tmp_path)}  # no nvidia-smi, also on a machine with GPUs
    done = subprocess.run([sys.executable, check.__file__], env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (check.NO_GPU, "") and "nvidia-smi was not found" in done.stderr, done
    assert f"{check.NO_GPU} there is nothing to compare" in check.__doc__ and "pytest tests/gpu" in done.stderr


def test_figures_are_compared_with_a_tolerance_and_outcomes_are_not():
    assert not check.differs(100, 101) and check.differs(100, 103) and check.differs(0, 1)
    assert check.differs("passed", "failure") and not check.differs("passed", "passed")
