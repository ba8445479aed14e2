from distdbg.launch.live.state import RunState
from distdbg.launch.live.view import summary


def events(*, steps):
    yield 0, {"event": "agent-started", "host": "a"}
    yield 0, {"event": "attempt-started", "attempt": 1, "ranks": {"0": 0, "1": 1}}
    yield 1, {"event": "attempt-started", "attempt": 1, "ranks": {"2": 0, "3": 1}}
    for rank in range(4):
        yield rank // 2, {"event": "rank-started", "rank": rank, "pid": 100 + rank, "attempt": 1}
        yield rank // 2, {"event": "metrics", "ranks": [{"rank": rank, "step": steps[rank], "rate": 2.0, "rss": 2**30}]}


def state_after(*pairs):
    state = RunState()
    for node, event in pairs:
        state.apply(node, event)
    return state


def test_summary_names_the_rank_that_is_behind():
    state = state_after(*events(steps=[9, 9, 7, 9]))
    assert summary(state) == "4 ranks: 4 running, step 9, 2 steps/s, slowest rank 2 at step 7, 4.00 GiB"


def test_level_ranks_have_no_slowest():
    assert state_after(*events(steps=[9, 9, 9, 9])).slowest is None


def test_a_rank_that_was_asked_to_stop_has_not_failed():
    state = state_after(
        *events(steps=[1, 1, 1, 1]),
        (0, {"event": "rank-exited", "rank": 0, "exit_code": -15, "asked_to_stop": 1.0}),
        (0, {"event": "rank-exited", "rank": 1, "exit_code": 1, "asked_to_stop": None}),
        (1, {"event": "rank-exited", "rank": 2, "exit_code": 0, "asked_to_stop": None}),
    )
    assert [state.ranks[r].state for r in range(4)] == ["stopped", "failed", "finished", "running"]


def test_a_new_attempt_begins_anew():
    state = state_after(*events(steps=[5, 5, 5, 5]), (0, {"event": "attempt-started", "attempt": 2, "ranks": {"0": 0}}))
    assert set(state.ranks) == {0}
    assert state.ranks[0].step is None
