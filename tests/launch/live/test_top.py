"""What stands first in `distdbg top`, and what is no trouble."""

import json
import math

import pytest
from rich.console import Console

from distdbg.collect.runs.run_tail import RunTail
from distdbg.launch.live.top import FAULTY, SLOWED, WELL, Top
from distdbg.launch.live.top_view import table_of
from tests.made_run import MadeRun


def feed(ranks, *, nodes=2, now=100.0):
    top = Top()
    per = len(ranks) // nodes
    for node in range(nodes):
        mine = ranks[node * per : (node + 1) * per]
        top.take(node, {"event": "agent-started", "host": f"n{node}"}, now)
        top.take(node, {"event": "attempt-started", "attempt": 1, "ranks": {str(r["rank"]): 0 for r in mine}}, now)
        for rank in mine:
            top.take(node, {"event": "rank-started", "rank": rank["rank"], "pid": 7}, now)
        top.take(node, {"event": "metrics", "ranks": mine}, now)
    return top


def level(count=4, **special):
    ranks = [{"rank": r, "step": 100 + r % 2, "rate": 5.0, "phase": "forward", "rss": 2 << 30, "step_ms": 200.0}
             for r in range(count)]  # fmt: skip
    for rank, fields in special.items():
        ranks[int(rank[1:])].update(fields)
    return ranks


def troubles(top, now=105.0, most=16):
    return [(tuple(r.rank for r in row.ranks), row.words) for row in top.rows(now, most) if row.trouble < WELL]


def test_ranks_that_are_level_have_no_trouble():
    top = feed(level())
    assert troubles(top) == []
    assert [row.ranks[0].rank for row in top.rows(105, 16)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("rate", "words"),
    [(5.0, []), (0.0, [((2,), "41 steps behind"), ((3,), "40 steps behind")])],
    ids=["both go on", "a node that stands"],
)
def test_lines_of_two_nodes_are_of_different_moments(rate, words):
    ranks = level(r2={"step": 60, "rate": rate}, r3={"step": 61, "rate": rate})
    top = feed(ranks, now=100.0)
    top.take(1, {"event": "metrics", "ranks": ranks[2:]}, 93.0 if rate else 100.0)
    assert troubles(top, now=101.0) == words


@pytest.mark.parametrize(
    ("special", "words"),
    [
        ({"r2": {"step": 90}}, [((2,), "11 steps behind")]),
        ({"r1": {"rss": 9 << 30}}, [((1,), "4.5 times the others' memory")]),
        ({"r1": {"rss": int(2.9 * 2**30)}}, []),  # not so much more
        (
            {"r0": {"late_ms": 1.0}, "r1": {"late_ms": 61.0}},
            [((1,), "60 ms later than the others of its node, 30% of a step")],
        ),
        ({"r0": {"late_ms": 1.0}, "r1": {"late_ms": 41.0}}, []),  # of a step of 200 ms
        ({"r1": {"late_ms": 90.0}}, []),  # of the other nothing is known
        ({"r0": {"late_ms": 0.1, "step_ms": 0.5}, "r1": {"late_ms": 0.9, "step_ms": 0.5}}, []),
        ({"r0": {"late_ms": 0.0}, "r3": {"late_ms": 90.0}}, []),  # of two nodes: their clocks are not compared
    ],
)
def test_one_that_is_not_as_the_others(special, words):
    assert troubles(feed(level(**special))) == words


def test_failed_before_silent_before_behind():
    top = feed(level(r0={"step": 90}, r2={"step": 1000}, r3={"step": 1000}))  # more than 40 s at 5 steps a second
    top.take(0, {"event": "rank-exited", "rank": 1, "exit_code": -9}, 140.0)
    found = troubles(top, now=150.0)
    assert [ranks for ranks, _ in found] == [(1,), (2,), (3,), (0,)]
    assert found[0][1] == "failed with exit code -9" and "no message from its node for 50 s" in found[1][1]


def test_a_clock_that_is_behind_silences_nobody_and_a_node_that_stops_is_silent(tmp_path):
    run = MadeRun(tmp_path, started=1000.0)
    tail, top = RunTail(run.dir), Top()

    def look(now, *writing):
        for node in writing:  # node 1's clock is two minutes behind the viewer's
            ranks = [{"rank": r, "step": 9 if r == 3 else 50, "data_wait": 0.5 if r == 2 else 0.0}
                     for r in run.ranks_of(node)]  # fmt: skip
            run.metrics(node, t=now - 1000.0 - 120.0 * node, ranks=ranks)
        for node, event in tail.poll():
            top.take(node, event, now)
        return troubles(top, now)

    late = [((3,), "41 steps behind"), ((2,), "waits for data 50 % of its time")]
    assert look(1100.0, 0, 1) == late
    assert look(1200.0, 0, 1) == late
    assert look(1230.0, 0) == late
    silent = "no message from its node for 40 s"
    assert look(1240.0, 0) == [((2,), silent), ((3,), silent)]
    assert look(1250.0, 0, 1) == late


def test_many_ranks_are_a_line_a_node_and_the_worst_first():
    top = feed(level(64, r40={"step": 10}), nodes=8)
    rows = top.rows(105, 16)
    assert len(rows) == 8
    assert (rows[0].host, rows[0].words) == ("5 n5", "rank 40: 91 steps behind")


def with_gpus(top, *gpus, node=0, **fields):
    top.take(node, {"event": "metrics", "ranks": [], "gpus": list(gpus), **fields}, 100.0)


def device(index, **fields):
    return {"index": index, "utilisation": 90, "memory_used": 40 << 30, "memory_total": 80 << 30, "temperature": 60,
            "throttle": ["power cap"], "ecc_uncorrected": 3, "ranks": [index], **fields}  # fmt: skip


def test_devices_that_are_well_are_no_trouble():
    top = feed(level())
    with_gpus(top, device(0), device(1), memory={"available": 600 << 30})
    with_gpus(top, device(0), device(1))
    rank = top.state.ranks[1]
    assert troubles(top) == [] and (rank.gpu_busy, rank.gpu_heat, rank.gpu_used, rank.gpu_total) == (
        90, 60, 40 << 30, 80 << 30,
    )  # fmt: skip
    assert top.state.ranks[2].gpu_busy is None


def test_what_is_wrong_with_a_device_and_a_node():
    top = feed(level(r0={"data_wait": 0.6}))
    with_gpus(top, device(0), device(1))
    with_gpus(top, device(0, throttle=["hardware slowdown"]), device(1, ecc_uncorrected=5))
    lost, closed = "the GPU has fallen off the bus", "no permission"
    with_gpus(top, {"index": 4, "because": lost, "ranks": []}, {"index": 5, "because": lost, "ranks": [3]},
              {"index": 6, "because": closed, "ranks": []}, node=1)  # fmt: skip
    top.take(1, {"event": "metrics", "ranks": [], "memory": {"available": 1 << 29}}, 100.0)
    top.take(0, {"event": "gpu-xid", "uuid": "GPU-1", "xid": 79, "ranks": [1]}, 101.0)
    words = {ranks[0]: said for ranks, said in troubles(top)}
    assert words[1] == "Xid 79, 2 memory errors of its GPU not corrected"
    assert words[0] == "GPU slowed down: hardware slowdown, waits for data 60 % of its time"
    left = "only 0.5 GiB of host memory left on its node"
    assert words[2] == f"GPU 4: {lost}, {left}" and words[3] == f"GPU 4: {lost}, {lost}, {left}"
    assert [row.trouble for row in top.rows(105, 16)] == [FAULTY, FAULTY, FAULTY, SLOWED]


def test_a_device_of_which_nobody_knows_whose_it_is():
    top = feed(level())
    with_gpus(top, device(0, ranks=[]), node=1)
    top.take(1, {"event": "gpu-xid", "uuid": "GPU-0", "xid": 48, "ranks": []}, 101.0)
    assert troubles(top) == [((2,), "Xid 48 on GPU GPU-0"), ((3,), "Xid 48 on GPU GPU-0")]
    assert top.rows(105, 2)[0].words == "Xid 48 on GPU GPU-0" and top.rows(105, 2)[0].node.gpu_busy == (90,)


def test_a_nodes_line_names_the_worst_and_counts_the_others():
    top = feed(level(64, r40={"step": 10}, r41={"data_wait": 0.5}), nodes=8)
    assert top.rows(105, 16)[0].words == "rank 40: 91 steps behind; 1 more"
    assert [row.ranks[0].rank for row in top.rows(105, 16, node=5)][:3] == [40, 41, 42]


def test_the_command(distdbg, tmp_path):
    run = MadeRun(tmp_path / "distdbg-runs")
    run.dir.job.write_text(json.dumps(run.job() | {"launcher": None}))  # top ends: nobody knows whether it lives
    run.exits(3, -9)
    once = distdbg("top", "--once")
    assert once.code == 0 and "failed with exit code -9" in once.out.splitlines()[2], once
    assert len(once.out.splitlines()) == 6 and "steps/s" not in once.out
    found = json.loads(distdbg("top", "--json").out.splitlines()[0])
    assert found["schema"] == "distdbg.top/1"
    assert [r["trouble"] for r in found["ranks"]] == [None, None, None, "failed with exit code -9"]


def test_a_run_without_ranks(distdbg, tmp_path):
    folder = tmp_path / "distdbg-runs" / "20260101T000000Z-train-beef"
    folder.mkdir(parents=True)
    (folder / "job.json").write_text("{}")
    done = distdbg("top")
    assert done.code == 3 and "no record of any rank yet" in done.err


def test_what_is_no_event_is_passed_over():
    top = feed(level())
    for bad in ({"event": "metrics", "ranks": [{}]}, {"event": "metrics", "gpus": 3}, {"event": "gpu-xid", "xid": None},
                {"event": "metrics", "memory": {"available": "much"}}, {"event": "rank-exited"}, {}):  # fmt: skip
        top.take(0, bad, 101.0)
    assert troubles(top) == [] and len(top.rows(105, 16)) == 4


def test_fields_of_other_types_are_unknown(capsys):
    """A file of metrics that another program wrote: no field of it stops the view, and none changes what was known."""
    top = feed(level())
    odd = (math.inf, math.nan, 2**70, -1, True, "much", "٣", [], {"a": 1}, None)
    fields = ("rank", "step", "rate", "phase", "rss", "data_wait", "late_ms", "step_ms")
    gpu = ("index", "ranks", "utilisation", "temperature", "memory_used", "memory_total", "because", "throttle",
           "ecc_uncorrected")  # fmt: skip
    for value in odd:
        for event in (
            *({"event": name, "rank": value, "pid": value} for name in ("rank-started", "rank-exited")),
            {"event": "attempt-started", "attempt": value, "ranks": [value]},
            {"event": "attempt-started", "attempt": 1, "ranks": value},
            {"event": "gpu-xid", "xid": value, "ranks": [value]},
            *({"event": "metrics", "ranks": [{"rank": 0, name: value}]} for name in fields if value != -1),
            *({"event": "metrics", name: value} for name in ("ranks", "gpus", "memory", "gpus_because")),
            *({"event": "metrics", "gpus": [{"ranks": [0], name: value}]} for name in gpu if value != -1),
        ):
            top.take(0, event, 101.0)
            Console().print(table_of(top.rows(105.0, 16), 180))
            json.dumps(top.as_json(105.0))
    assert len(top.rows(105.0, 16)) == 4
    known = [(rank["step"], rank["rss"]) for rank in top.as_json(105.0)["ranks"]]
    assert known == [(100 + r % 2, 2 << 30) for r in range(4)]


def test_lateness_stands_in_json():
    top = feed(level(r1={"late_ms": 61.5}))
    assert [rank["late_ms"] for rank in top.as_json(105.0)["ranks"]] == [None, 61.5, None, None]
