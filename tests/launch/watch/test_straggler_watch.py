"""Who is asked to be looked at: only who is late by all ranks' figures, and once a phase."""

from types import SimpleNamespace

import pytest

from distdbg.launch.watch.straggler_watch import StragglerWatch

LATE = {"windows": 20, "data": 800, "backward": 200}
WAITS = {"windows": 20, "data": 100, "backward": 900}


@pytest.fixture
def watched():
    """(watch, the requests that it makes, what it notes)."""
    asked, noted = [], []
    watch = StragglerWatch(SimpleNamespace(note=lambda message: noted.append(message.spec.name)))
    watch.guard(SimpleNamespace(tell_all=asked.append))
    return watch, asked, noted


def phases(ranks, step_ms=100.0):
    reported = {str(rank): shares for rank, shares in ranks.items()}
    return {"event": "phases", "ranks": reported, "step_ms": dict.fromkeys(reported, step_ms)}


def test_the_others_may_be_on_another_node(watched):
    watch, asked, _ = watched
    watch.hear(phases({0: WAITS, 1: LATE}), range(4))
    assert asked == [], "half of the ranks are not known yet"
    watch.hear(phases({2: WAITS, 3: WAITS}), range(4))
    watch.hear(phases({2: WAITS, 3: WAITS}), range(4))
    assert [request.fields() for request in asked] == [{"rank": 1, "phase": "data", "usual_ms": 10.0}]


def test_nobody_is_late(watched):
    watch, asked, _ = watched
    watch.hear(phases(dict.fromkeys(range(4), WAITS)), range(4))
    assert asked == []


def test_another_attempt_begins_anew(watched):
    watch, asked, _ = watched
    ranks = {0: WAITS, 1: LATE, 2: WAITS}
    for attempt in (1, 2):
        watch.hear({"event": "attempt-started", "attempt": attempt}, range(3))
        watch.hear(phases(ranks), range(3))
        watch.hear({"event": "attempt-started", "attempt": attempt}, range(3))  # of another node
        watch.hear(phases(ranks), range(3))
    assert len(asked) == 2


def test_an_error_of_ours_costs_the_samples_alone(watched):
    watch, asked, noted = watched
    watch.hear({"event": "phases", "ranks": {"0": {"windows": "many"}}}, range(1))
    watch.hear({"event": "phases", "ranks": None}, range(1))
    watch.hear(phases({0: WAITS, 1: LATE, 2: WAITS}), range(3))
    assert (asked, noted) == ([], ["late-watch-error"])
