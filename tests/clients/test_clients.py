"""What people train with runs under `distdbg launch` as it is: Trainer, Accelerate, Lightning, an FSDP2 loop."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distdbg.worker.guards import guard_classes

PROGRAMS = Path(__file__).parents[1] / "programs" / "clients"

#: Optimizer steps of each: the worker side must find them in every framework's way of calling an optimizer.
STEPS = {"hf_trainer": 6, "accelerate_script": 12, "lightning_script": 12, "titan_like": 12}


@pytest.mark.slow
@pytest.mark.parametrize("client", STEPS)
def test_client_unmodified_on_two_nodes_by_two_ranks(distdbg, tmp_path, client):
    program = PROGRAMS / f"{client}.py"
    done = distdbg("launch", "--nodes", 2, "--nproc-per-node", 2, program, tmp_path / "out")

    assert done.code == 0, done
    # Rank 0 says how many ranks its framework saw: 4 agents of one rank each would be another job.
    said = done.run.attempt(1).rank(0).stdout.read_text()
    assert "CLIENT OK 4" in said.splitlines(), said
    report = json.loads(done.run.report_json.read_text())
    assert report["outcome"] == "succeeded", report
    guards = {guard.id for guard in guard_classes()}
    assert [f for f in report["findings"] if f["severity"] == "error" or f["id"] in guards] == []
    facts = [json.loads(x) for rank in range(4) for x in done.run.attempt(1).rank(rank).facts.read_text().splitlines()]
    assert [f for f in facts if f.get("kind") in ("guard-failed", "subscriber-dropped", "not-hooked")] == []
    assert [rank["rank"] for rank in report["ranks"]] == [0, 1, 2, 3]
    assert [rank["step"] for rank in report["ranks"]] == [STEPS[client]] * 4, (
        "optimizer steps, as the worker side counted them"
    )
