"""The window of `distdbg top`: what is drawn, what a key does, and the whole of it on a terminal."""

import os
import pty
import subprocess
import sys
import time

import pytest
from rich.console import Console

from distdbg.launch.live.top_view import TopView
from tests.launch.live.test_top import device, feed, level, with_gpus
from tests.made_run import MadeRun


def screen(view, width=120, height=16, now=105.0):
    view.look(now, height)
    console = Console(width=width, height=height, record=True, file=open(os.devnull, "w"))
    console.print(view.render("run", width, height))
    return console.export_text().splitlines()


def press(view, *keys):
    for key in keys:
        screen(view)
        view.key(key)
    return screen(view)


def test_four_thousand_ranks_fit_a_screen_with_the_outlier_first():
    view = TopView(feed(level(4096, r3000={"step": 10}), nodes=512))
    for width in (80, 100, 160):
        lines = screen(view, width, 40)
        assert len(lines) == 40 and all(len(line) <= width for line in lines)
        assert lines[2].startswith("375 n375") and lines[2].rstrip().endswith("rank 3000: 91 steps behind")
    assert "lines 1-37 of 512" in screen(view, 160, 40)[-1]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_every_width_shows_how_to_leave(width):
    line = screen(TopView(feed(level(4))), width)[-1].rstrip()
    assert "q leaves" in line
    assert not line.endswith("…")


def test_a_narrow_terminal_keeps_whole_figures():
    top = feed(level(8, r3={"data_wait": 0.7}))
    with_gpus(top, *(device(n) for n in range(4)), memory={"available": 500 << 30})
    assert "40/80 GiB" in screen(TopView(top))[2] and "60" in screen(TopView(top))[2].split()
    narrow = screen(TopView(top), 78)
    assert "waits for data 70 % of its time" in narrow[2] and "GiB" not in narrow[2] and "101" in narrow[2]


def test_lateness_is_shown_where_it_is_known_and_a_node_shows_its_latest():
    top = feed(level(8, r1={"late_ms": 61.4}, r2={"late_ms": 0.3}))
    lines = screen(TopView(top), 160)
    at = lines[1].index("late")
    shown = {line.split()[2]: line[: at + 4].split()[-2:] for line in lines[2:10]}
    assert shown["1"] == ["61", "ms"] and shown["2"] == ["0.3", "ms"] and shown["5"][-1] == "-"
    view = TopView(feed(level(64, r1={"late_ms": 61.4}, r2={"late_ms": 12_345.0}), nodes=8))
    assert "12 s" in next(line for line in screen(view) if line.startswith("0 n0"))
    assert "late" not in screen(TopView(feed(level(8))))[1]


def test_keys_move_into_a_node_and_back():
    view = TopView(feed(level(64, r40={"step": 10}), nodes=8))
    assert press(view, "down")[2].startswith("5 n5") and view.ranks == "40-47"
    assert len(press(view, "down", "up", "in")) == 11 and view.node == 5 and view.ranks == ""
    press(view, "down", "down")
    assert view.ranks == "41"
    press(view, "out")
    assert view.node is None and view.ranks == ""
    press(view, "up")
    assert view.ranks == "56-63"


def test_the_chosen_rank_stays_the_chosen_one_when_rows_change_places():
    top = feed(level(8))
    view = TopView(top)
    press(view, "down", "down", "down")
    assert view.ranks == "2"
    top.take(1, {"event": "rank-exited", "rank": 7, "exit_code": 1}, 104.0)
    screen(view)
    assert view.ranks == "2"
    top.take(0, {"event": "rank-exited", "rank": 2, "exit_code": 1}, 104.0)
    screen(view)
    assert view.chosen.ranks[0].rank == 2 and view.ranks == ""  # nothing can be asked of it any more


def test_the_window_goes_with_the_chosen_row():
    view = TopView(feed(level(4096), nodes=512))
    lines = press(view, *["page-down"] * 4)
    assert any(line.startswith("30 n30") for line in lines) and "lines 19-31 of 512" in lines[-1]


class Terminal:
    """`distdbg top` on a terminal of its own."""

    def __init__(self, folder):
        self.end, other = pty.openpty()
        command = [sys.executable, "-m", "distdbg", "top", "--interval", "0.5"]
        environment = {**os.environ, "COLUMNS": "120", "LINES": "20", "TERM": "xterm"}
        self.process = subprocess.Popen(command, cwd=folder, env=environment, stdin=other, stdout=other, stderr=other)
        os.close(other)
        self.seen = ""

    def until(self, words):
        deadline = time.monotonic() + 60
        while words not in self.seen:
            assert time.monotonic() < deadline, self.seen[-2000:]
            self.seen += os.read(self.end, 1 << 16).decode("utf-8", "replace")
        self.seen = ""

    def type(self, keys):
        os.write(self.end, keys)


@pytest.fixture
def terminal(tmp_path):
    MadeRun(tmp_path / "distdbg-runs", 4, 2)
    made = Terminal(tmp_path)
    yield made
    made.process.kill()
    made.process.wait()
    os.close(made.end)


@pytest.mark.slow
def test_keys_on_a_terminal_ask_other_commands_and_come_back(terminal):
    terminal.until("q leaves")
    terminal.type(b"s")
    terminal.until("first choose a running rank or a node")
    terminal.type(b"\x1b[B\x1b[Bs")
    terminal.until("--ranks 1")
    terminal.until("any key: back to top")
    terminal.type(b"x")
    terminal.until("q leaves")
    terminal.type(b"q")
    assert terminal.process.wait(30) == 0
