"""`distdbg launch --no-python` of programs that start ranks: torchrun's variables stay out of their way, and a hang of
the ranks that they have started is found. Ray and DeepSpeed are too large to install."""

import json
import sys
from pathlib import Path

import pytest

from distdbg.launch.io.ports import ReservedPort

PROGRAMS = Path(__file__).parents[1] / "programs" / "launchers"
MULTI = ["--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no"]
ACCELERATE = [Path(sys.executable).with_name("accelerate"), "launch", *MULTI, "--dynamo_backend", "no"]
LIGHTNING = ["env", "-u", "RANK", "-u", "LOCAL_RANK", "-u", "WORLD_SIZE", "-u", "TORCHELASTIC_RUN_ID", sys.executable]
JOBS = {
    "accelerate": [*ACCELERATE, "--main_process_port", "PORT", PROGRAMS / "from_environment.py"],
    "spawn": [sys.executable, PROGRAMS / "spawned.py", "PORT"],
    "lightning": [*LIGHTNING, PROGRAMS / "lightning_fit.py"],
}


@pytest.mark.slow
@pytest.mark.started
@pytest.mark.parametrize("launcher", JOBS)
def test_a_hang_of_ranks_that_a_launcher_has_started(launcher, distdbg):
    port = ReservedPort()
    program = [port.number if word == "PORT" else word for word in JOBS[launcher]]
    options = ["--nproc-per-node", "1", "--hang-timeout", "8", "--on-hang", "kill", "--grace", "1", "--no-python"]
    result = distdbg("launch", *options, *program, env={"FAULT": "hang"})
    assert result.code == 75, result
    roots = [f for f in json.loads(result.run.report_json.read_text())["findings"] if f["explained_by"] is None]
    assert [(f["id"], f["ranks"]) for f in roots] == [("stuck-in-python", [1])]
    assert "steps.py:16" in roots[0]["summary"]
