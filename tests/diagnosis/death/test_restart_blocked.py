"""A rank fails after another node has finished: torchrun waits for a restart that cannot come."""

import pytest

from distdbg.launch.live import remarks
from distdbg.launch.live.remarks import BlockedRestart
from distdbg.launch.live.state import RunState
from tests.made_run import MadeRun


def failed_late(tmp_path, *, restarts="1", torchrun_ended=320.0):
    run = MadeRun(tmp_path)
    run.event(0, "agent-started", t=0, pid=100, host="node0", node_rank=0, argv=["--max-restarts", restarts])
    run.exits(2, 0, t=10.0)
    run.exits(3, 0, t=10.0)
    run.exits(1, 3, t=9.9)
    run.exits(0, -15, t=10.4, asked=10.3)
    if torchrun_ended is not None:
        run.event(0, "torchrun-exited", t=torchrun_ended, exit_code=1, reported={})
    return run


@pytest.mark.parametrize("torchrun_ended", [320.0, None])
def test_restart_waits_for_a_finished_node(tmp_path, torchrun_ended):
    run = failed_late(tmp_path, torchrun_ended=torchrun_ended)
    found = {f.id: f for f in run.report().findings}
    assert (found["restart-blocked"].ranks, found["restart-blocked"].nodes) == ((1,), ("node0", "node1"))
    assert run.report().findings[0].id == "rank-exception"


def test_no_restart_is_blocked_if_none_was_allowed_or_torchrun_ended_at_once(tmp_path):
    first = failed_late(tmp_path / "a", restarts="0")
    second = failed_late(tmp_path / "b", torchrun_ended=12.0)
    ids = {f.id for run in (first, second) for f in run.report().findings}
    assert ids == {"rank-exception"}


def test_no_restart_is_blocked_if_a_rank_of_the_other_node_was_stopped(tmp_path):
    run = failed_late(tmp_path)
    run.exits(3, -15, t=10.5, asked=10.3)
    assert "restart-blocked" not in {f.id for f in run.report().findings}


def test_launch_tells_it_while_torchrun_waits(monkeypatch):
    monkeypatch.setattr(remarks, "_BLOCKED_S", 0.0)
    state, blocked = RunState(), BlockedRestart("1")
    for node, rank in enumerate((0, 1)):
        state.apply(node, {"event": "attempt-started", "attempt": 1, "ranks": {str(rank): 0}})
        state.apply(node, {"event": "rank-started", "rank": rank, "pid": 1})
    assert blocked.look(state) == ""
    state.apply(1, {"event": "rank-exited", "rank": 1, "exit_code": 0})
    assert blocked.look(state) == ""
    state.apply(0, {"event": "rank-exited", "rank": 0, "exit_code": 3, "asked_to_stop": None})
    assert "node 0 waits" in blocked.look(state)
    assert blocked.look(state) == ""
    assert BlockedRestart("").look(state) == BlockedRestart("0").look(state) == ""
