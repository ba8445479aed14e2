"""What torchrun does with our side inside it."""

import json
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[2] / "programs"


@pytest.mark.slow
def test_torchrun_ends_no_rank_before_the_agent_has_asked_it(distdbg):
    """It looks at its ranks each millisecond here. Only the recorder of the other rank says what that one waited in."""
    program = PROGRAMS / "dies_desync" / "loss_of_rank_0_only.py"
    result = distdbg("launch", "--nproc-per-node", "2", "--monitor-interval", "0.001", program, timeout=120)
    (dump,) = result.run.attempt(1).folder.glob("dumps/*/recorder/00001.1.json")
    assert json.loads(dump.read_text())["entries"]
    first = json.loads(result.run.report_json.read_text())["findings"][0]
    assert (first["id"], first["ranks"]) == ("rank-conditional-collective", [0])
