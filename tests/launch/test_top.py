"""What stands first in `distdbg top`, and what is no trouble."""

import json

import pytest
from rich.console import Console

from distdbg.launch.top import Top
from tests.made_run import MadeRun


def feed(ranks, *, nodes=2, t=100.0):
    top = Top()
    per = len(ranks) // nodes
    for node in range(nodes):
        mine = ranks[node * per : (node + 1) * per]
        top.take(node, {"t": t, "event": "agent-started", "host": f"n{node}"})
        top.take(node, {"t": t, "event": "attempt-started", "attempt": 1, "ranks": {str(r["rank"]): 0 for r in mine}})
        for rank in mine:
            top.take(node, {"t": t, "event": "rank-started", "rank": rank["rank"], "pid": 7})
        top.take(node, {"t": t, "event": "metrics", "ranks": mine})
    return top


def level(count=4, **special):
    ranks = [{"rank": r, "step": 100 + r % 2, "rate": 5.0, "phase": "forward", "rss": 2 << 30} for r in range(count)]
    for rank, fields in special.items():
        ranks[int(rank[1:])].update(fields)
    return ranks


def told(top, now=105.0, most=16):
    return [(tuple(r.rank for r in row.ranks), row.words) for row in top.rows(now, most) if row.trouble < 4]


def test_ranks_that_are_level_have_no_trouble():
    top = feed(level())
    assert told(top) == []
    assert [row.ranks[0].rank for row in top.rows(105, 16)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("special", "words"),
    [
        ({"r2": {"step": 90}}, [((2,), "11 steps behind")]),
        ({"r1": {"rss": 9 << 30}}, [((1,), "4.5 times the others' memory")]),
        ({"r1": {"rss": int(2.9 * 2**30)}}, []),  # not so much more
    ],
)
def test_one_that_is_not_as_the_others(special, words):
    assert told(feed(level(**special))) == words


def test_failed_before_silent_before_behind():
    top = feed(level(r0={"step": 90}))
    top.take(0, {"t": 140.0, "event": "rank-exited", "rank": 1, "exit_code": -9})
    found = told(top, now=150.0)
    assert [ranks for ranks, _ in found] == [(1,), (2,), (3,), (0,)]
    assert found[0][1] == "failed with exit code -9" and "nothing heard of its node for 50 s" in found[1][1]


def test_many_ranks_are_a_line_a_node_and_the_worst_first():
    top = feed(level(64, r40={"step": 10}), nodes=8)
    rows = top.rows(105, 16)
    assert len(rows) == 8
    assert (rows[0].host, rows[0].words) == ("5 n5", "rank 40: 91 steps behind")


@pytest.mark.slow
def test_four_thousand_ranks_fit_a_screen():
    top = feed(level(4096), nodes=512)
    console = Console(width=100, height=40, record=True, file=open("/dev/null", "w"))
    console.print(top.render("run", 105, 30))
    lines = console.export_text().splitlines()
    assert len(lines) == 32 and all(len(line) <= 100 for line in lines)


def test_the_command(distdbg, tmp_path):
    run = MadeRun(tmp_path / "distdbg-runs")
    run.exits(3, -9)
    once = distdbg("top", "--once")
    assert once.code == 0 and "failed with exit code -9" in once.out.splitlines()[2], once
    found = json.loads(distdbg("top", "--json").out.splitlines()[0])
    assert found["schema"] == "distdbg.top/1"
    assert [r["trouble"] for r in found["ranks"]] == [None, None, None, "failed with exit code -9"]


def test_a_run_without_ranks(distdbg, tmp_path):
    folder = tmp_path / "distdbg-runs" / "20260101T000000Z-train-beef"
    folder.mkdir(parents=True)
    (folder / "job.json").write_text("{}")
    done = distdbg("top")
    assert done.code == 3 and "no record of any rank yet" in done.err
