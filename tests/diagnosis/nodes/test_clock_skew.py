"""Clocks of nodes that differ: the order of failures is that of one clock, and the report says which node is off."""

import json
from contextlib import contextmanager

import pytest

from distdbg.collect.runs.run_evidence import load_evidence
from tests.made_run import T0, MadeRun

HOURS_2 = 7200.0


@contextmanager
def clock_ahead(run, seconds):
    run.t0 += seconds
    yield
    run.t0 -= seconds


def two_failures(folder, offset, *, gap=2.0, round_trip=0.01, reported=True):
    """Rank 0 fails, and `gap` seconds later rank 2 on node 1, whose clock is ahead by `offset`."""
    run = MadeRun(folder)
    if reported:
        bounds = {"least_s": offset - round_trip / 2, "most_s": offset + round_trip / 2}
        run.launcher("node-clock", t=1.5, node_rank=1, host="node1", **bounds)
    run.raises(0, "ValueError", "the first", t=9.0)
    with clock_ahead(run, offset):
        run.raises(2, "KeyError", "the second", t=9.0 + gap, line=99)
        run.exits(3, -15, t=9.5 + gap, asked=9.4 + gap)
    run.exits(1, -15, t=9.5, asked=9.4)
    return run.closes()


@pytest.mark.parametrize("offset", [HOURS_2, -HOURS_2])
def test_first_failure_is_the_first_by_one_clock(tmp_path, offset):
    report = two_failures(tmp_path, offset).report()
    roots = [(f.id, f.ranks) for f in report.verdict if f.severity == "error"]
    assert roots[0] == ("rank-exception", (0,))
    assert report.exit_code_of == "rank 0"
    (skew,) = [f for f in report.findings if f.id == "clock-skew"]
    side = "ahead of" if offset > 0 else "behind"
    assert (skew.severity, skew.nodes, skew.evidence[0].path) == ("warning", ("node1",), "events.jsonl")
    assert f"node 1 (node1) is 7,200.00 s {side}" in skew.summary.replace("7,199.99", "7,200.00")
    assert not [u for u in report.unknown if "failed first" in u.what]


def test_failures_closer_than_the_clocks_are_known_have_no_first(tmp_path):
    report = two_failures(tmp_path, HOURS_2, gap=0.3, round_trip=3.0).report()
    assert [u.what for u in report.unknown if "failed first" in u.what] == [
        "whether rank 0 on node0 or rank 2 on node1 failed first"
    ]


def test_all_times_of_the_node_are_on_one_clock(tmp_path):
    run = two_failures(tmp_path, HOURS_2, round_trip=0.0)
    with clock_ahead(run, HOURS_2):
        run.handles(3, "OSError", "late", t=12)
    evidence = run.evidence()
    rank = evidence.ranks[2]
    assert [rank.started, rank.ended, rank.exceptions[0].t] == pytest.approx([T0 + 1, T0 + 11.2, T0 + 11])
    assert evidence.ranks[3].asked_to_stop == pytest.approx(T0 + 11.4)
    assert evidence.ranks[3].exceptions[0].t == pytest.approx(T0 + 12)
    ends = [event["t"] for _, event in evidence.nodes[1].events if event["event"] == "rank-exited"]
    assert ends == pytest.approx([T0 + 11.2, T0 + 11.5])


@pytest.mark.parametrize(("offset", "says"), [(14.0, False), (-16.0, True)])
def test_torchruns_limit_is_named_if_it_is_exceeded(tmp_path, offset, says):
    (skew,) = [f for f in two_failures(tmp_path, offset).report().findings if f.id == "clock-skew"]
    assert ("it may fail, or start the ranks of the other nodes alone." in skew.cause) is says


def test_small_differences_are_no_finding(tmp_path):
    run = two_failures(tmp_path, 0.2)
    assert "clock-skew" not in [f.id for f in run.report().findings]


def test_without_a_measurement_nothing_is_shifted(tmp_path):
    evidence = two_failures(tmp_path, HOURS_2, reported=False).evidence()
    assert evidence.clocks == () and evidence.ranks[2].ended == pytest.approx(T0 + HOURS_2 + 11.2)


@pytest.mark.parametrize("bound", [1e299, -1e299, 2**62, True, "7200", None])
def test_implausible_measurement_is_not_used(tmp_path, bound):
    run = two_failures(tmp_path, 0.0, reported=False)
    run.launcher("node-clock", t=1.5, node_rank=1, host="node1", least_s=bound, most_s=bound)
    assert load_evidence(run.dir).clocks == ()


def test_dump_of_the_node_is_on_one_clock(tmp_path):
    run = MadeRun(tmp_path)
    run.launcher("node-clock", t=1.5, node_rank=1, host="node1", least_s=HOURS_2, most_s=HOURS_2)
    folder = run.dir.attempt(1).dump("asked")
    (folder / "nodes").mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"schema": "distdbg.dump/1", "t": T0 + 20, "ranks": {}}))
    for node in (0, 1):
        t = T0 + 20 + node * HOURS_2
        look = {"t": t, "process": {}, "stacks": {}, "recorder": {}, "page": {"forward_t": t - 3, "quiet_s": 3.0}}
        part = {"node_rank": node, "host": f"node{node}", "ranks": [{"rank": 2 * node, "pid": 9, "looks": [look]}]}
        (folder / "nodes" / f"{node}.json").write_text(json.dumps(part))
    ranks = run.evidence().dump.ranks
    assert [r.last.t for r in ranks.values()] == [T0 + 20] * 2
    assert [r.last.page.forward_t for r in ranks.values()] == [T0 + 17] * 2
