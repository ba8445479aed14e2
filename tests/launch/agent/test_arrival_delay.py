"""Who comes last on a node, by pages of ranks that were written as ranks write them."""

import pytest

from distdbg.launch.agent.ranks import RankProcess
from distdbg.launch.agent.timing import ArrivalDelay, PhaseClock, behind_first
from distdbg.launch.io.loop import Loop
from distdbg.protocol.page import read_page
from distdbg.worker import page
from distdbg.worker.page import BACKWARD, BACKWARDS, OTHER, STEPS, PageWriter

MS = 1_000_000


def test_those_that_came_as_often_as_any_are_compared():
    assert behind_first({0: (7, 100), 1: (7, 130), 2: (6, 50)}) == {0: 0, 1: 30}
    assert behind_first({0: (8, 100), 1: (7, 130), 2: (7, 50)}) == {}, "one alone: nobody knows yet who is late"
    assert behind_first({0: (0, 0), 1: (0, 0)}) == {} == behind_first({})


def test_the_median_of_the_newest_looks_is_reported_and_of_two_gates_the_larger():
    rank = ArrivalDelay()
    for ms in (900, 20, 21, 22):
        rank.add("forward", ms * MS, 0.0)
    assert rank.newest_ms(0.0) is None
    rank.add("forward", 19 * MS, 0.0)
    for _ in range(9):
        rank.add("backward", 3 * MS, 6.0)
    assert rank.newest_ms(6.0) == 21
    for _ in range(40):
        rank.add("forward", 0, 6.0)
    assert rank.newest_ms(6.0) == 3, "what was looks ago has gone"


def test_a_rank_that_is_compared_with_nobody_any_more_has_none():
    """It alone comes through the wrapper more often: its last figures are no news."""
    rank = ArrivalDelay()
    for _ in range(9):
        rank.add("forward", 30 * MS, 5.0)
    assert (rank.newest_ms(6.0), rank.newest_ms(16.0)) == (30, None)


def test_stages_of_a_pipeline_are_not_compared(node):
    for writer in node.writers:
        send = writer.transfer()
        for _ in range(12):
            send()
    for _ in range(9):
        node(backward_1=25)
    assert [rank.metrics()["late_ms"] for rank in node.ranks] == [None] * 3
    assert not any(rank.phases.shares() for rank in node.ranks)
    for _ in range(9):
        node(backward_1=25)
    assert node.ranks[1].metrics()["late_ms"] == 25, "twelve transfers at the start make no pipeline of many steps"


@pytest.fixture
def node(tmp_path, monkeypatch):
    """Three ranks that live, a clock, and a step of all: `late` by rank in ms, before the forward or the backward."""
    now = [1_000_000 * MS]
    monkeypatch.setattr(page, "_now", lambda: now[0])
    writers = [PageWriter(str(tmp_path / f"{n}.page"), n, 1) for n in range(3)]
    ranks = [RankProcess(n, n, 1, tmp_path / f"{n}.page", tmp_path / "error", pid=100 + n) for n in range(3)]
    for rank in ranks:
        rank.page = read_page(rank.page_path.read_bytes())
    clock = PhaseClock(Loop(), lambda: ranks)

    def step(missing=(), **late):
        begun = now[0]
        for gate in ("forward", "backward"):
            begun += 10 * MS
            for n, writer in enumerate(writers):
                now[0] = begun + late.get(f"{gate}_{n}", 0) * MS
                if n not in missing:
                    tick = writer.forward_ticker() if gate == "forward" else writer.ticker(BACKWARD, BACKWARDS)
                    tick(None)
        clock._tick()
        now[0] = begun + 100 * MS
        for writer in writers:
            writer.ticker(OTHER, STEPS)(None)
        for rank in ranks:
            rank.page = read_page(rank.page_path.read_bytes())

    step.ranks, step.writers = ranks, writers
    return step


def test_pages_tell_who_is_late_and_where_it_is_seen(node):
    for _ in range(9):
        node(backward_1=25, forward_2=8)
    assert [rank.metrics()["late_ms"] for rank in node.ranks] == [0, 25, 8]


def test_the_first_steps_and_a_rank_that_is_not_there_yet_are_left_out(node):
    for _ in range(7):
        node(backward_1=900)
    assert node.ranks[1].metrics()["late_ms"] is None, "the first three set up, and four are too few"
    for _ in range(5):
        node(missing=(1,))
    assert node.ranks[0].metrics()["late_ms"] == 0 and node.ranks[1].metrics()["late_ms"] is None


def test_a_rank_that_is_alone_on_its_node_has_none(node):
    del node.ranks[1:]
    for _ in range(9):
        node()
    assert node.ranks[0].metrics()["late_ms"] is None
