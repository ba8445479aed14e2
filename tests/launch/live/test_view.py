"""What a person sees while a job runs: the table on a terminal, the line in a log."""

import contextlib
import io
import re
import time

import pytest

from distdbg.launch.live.console import Shown
from distdbg.launch.live.state import RunState
from distdbg.launch.live.view import LiveView, PlainView
from tests.launch.live.test_state import events, state_after

RUN = "20260101T000000Z-train-beef"


def small():
    return state_after(
        *events(steps=[9, 9, 7, 9]),
        (1, {"event": "agent-started", "host": "b"}),
        (0, {"event": "metrics", "ranks": [{"rank": 1, "phase": "backward"}]}),
    )


def large(nodes=128, per_node=8):
    """1,024 ranks: rank 700 is ten steps behind, rank 900 has failed."""
    state = RunState()
    for node in range(nodes):
        mine = range(node * per_node, (node + 1) * per_node)
        state.apply(node, {"event": "agent-started", "host": f"n{node}"})
        state.apply(node, {"event": "attempt-started", "attempt": 1, "ranks": {str(r): r % per_node for r in mine}})
        for rank in mine:
            state.apply(node, {"event": "rank-started", "rank": rank, "pid": 7})
        rows = [{"rank": r, "step": 490 if r == 700 else 500, "rate": 2.5, "rss": 1 << 30} for r in mine]
        state.apply(node, {"event": "metrics", "ranks": rows})
    state.apply(112, {"event": "rank-exited", "rank": 900, "exit_code": -9, "asked_to_stop": None})
    return state


class Screen(io.StringIO):
    """A terminal of 80 columns and 24 lines; `drawn` is what came since the last look, without colours."""

    def isatty(self):
        return True

    def drawn(self):
        lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.getvalue()).replace("\r", "").split("\n")
        self.seek(0)
        self.truncate()
        return [line.rstrip() for line in lines if line.strip()]


@pytest.fixture
def draw(monkeypatch):
    """The first table of a state on a terminal of its own, with what ranks have printed until then."""
    for name, value in {"COLUMNS": "80", "LINES": "24", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)

    def draw(state, *lines, partial=()):
        with contextlib.redirect_stderr(Screen()) as screen:
            view = LiveView(state, RUN)
            screen.drawn()
            view.tick(Shown(list(lines), list(partial)))
            drawn = screen.drawn()
            view.close()
        return drawn

    return draw


def test_four_ranks_are_a_line_each(draw):
    lines = draw(small())
    assert " ".join(lines[:2]) == (
        f"{RUN}  4 ranks: 4 running, step 9, 2 steps/s, slowest rank 2 at step 7, 4.00 GiB  0:00"
    )
    assert lines[2].split() == ["node", "rank", "state", "step", "steps/s", "phase", "memory"]
    assert [line.split() for line in lines[3:]] == [
        ["0", "a", "0", "running", "9", "2", "1.00", "GiB"],
        ["0", "a", "1", "running", "9", "2", "backward", "1.00", "GiB"],
        ["1", "b", "2", "running", "7", "2", "1.00", "GiB"],
        ["1", "b", "3", "running", "9", "2", "1.00", "GiB"],
    ]


def test_a_thousand_ranks_are_a_line_a_node_that_failed_first(draw):
    lines = draw(large())
    title = " ".join(lines[:2])
    assert "1024 ranks: 1023 running, 1 failed, step 500, 2.5 steps/s" in title
    assert "slowest rank 700 at step 490, 1023.00 GiB" in title
    assert len(lines) == 2 + 1 + 16 <= 24 and all(len(line) <= 80 for line in lines)
    assert lines[3].split() == "112 n112 896-903 7 running, 900 failed 500 2.5 7.00 GiB".split()
    assert lines[4].split() == "0 n0 0-7 8 running 500 2.5 8.00 GiB".split()


def test_what_ranks_print_goes_above_the_table_and_a_bar_stands_in_it(draw):
    lines = draw(small(), b"loss 0.3", partial=[b" 10%\r 20%"])
    assert lines[:2] == ["loss 0.3", " 20%"] and lines[2].startswith(RUN)


def test_a_log_gets_a_line_every_thirty_seconds(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for state, words in (
        (small(), "4 ranks: 4 running, step 9, 2 steps/s, slowest rank 2 at step 7"),
        (large(), "1024 ranks: 1023 running, 1 failed, step 500, 2.5 steps/s, slowest rank 700 at step 490"),
    ):
        view = PlainView(state, out := io.StringIO())
        for _ in range(130):
            now[0] += 0.5
            view.tick(Shown())
        memory = f"{len(state.with_state('running'))}.00 GiB"
        assert out.getvalue().splitlines() == [f"distdbg: {words}, {memory}, {clock}" for clock in ("0:30", "1:00")]
