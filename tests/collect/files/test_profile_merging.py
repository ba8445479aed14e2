"""Traces become one: processes, times and ids of their own; what is cut off is used as far as it goes."""

import gzip
import json

import pytest

from distdbg.collect.files.profile_merging import RankTrace, merge
from distdbg.collect.runs.run_profiles import sets_of
from distdbg.errors import EvidenceUnreadable, Refused
from distdbg.rundir import RunDir

BASE = 1_790_000_000_000_000_000


def trace(path, rank, *, base=BASE, at_end=False, cut=0, host="node0", plain=False, count=300):
    """As kineto writes one: a process, a GPU, flows between them, and what it says of itself."""

    def about(pid, name):
        return {"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "ts": 1.5, "args": {"labels": name}}

    events = [about(4242, "CPU"), about(0, "GPU 0"), about(7, "GPU 7")]
    for n in range(count):
        launch = {"correlation": n, "External id": n}
        op = {
            "ph": "X",
            "cat": "cpu_op",
            "name": 'aten::mm "µ"',
            "tid": 4242,
            "dur": 5.0,
            "pid": 4242,
            "ts": 100.5 + 20 * n,
        }
        events += [{**op, "args": {"External id": n}}]
        events += [{**op, "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "args": {"stream": 7, **launch}}]
        events += [{"ph": "s", "id": n, "cat": "ac2g", "name": "ac2g", "pid": 4242, "tid": 4242, "ts": 101.0 + 20 * n}]
    events += [
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "x", "ts": 1.0, "dur": 1}
    ]
    head = {"schemaVersion": 1, "distdbg": {"rank": rank, "host": host}}
    base_key = {} if base is None else {"baseTimeNanoseconds": base}
    whole = {
        **head,
        **({} if at_end else base_key),
        "traceEvents": events,
        "traceName": "x",
        **(base_key if at_end else {}),
    }
    data = json.dumps(whole, indent=2).encode()
    data = data if plain else gzip.compress(data)
    path.write_bytes(data[: len(data) - cut])
    return RankTrace(rank, path)


def read(path):
    with gzip.open(path) as file:
        return json.load(file)


def merged(tmp_path, *traces):
    found = merge(traces, tmp_path / "profile" / "merged.json.gz", lambda _: None)
    assert [p.name for p in found.path.parent.iterdir()] == ["merged.json.gz"], "nothing is left beside it"
    return found, read(found.path)["traceEvents"]


def test_ranks_stand_beside_each_other(tmp_path):
    found, events = merged(tmp_path, trace(tmp_path / "a", 0), trace(tmp_path / "b", 3, plain=True))
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {1000: "rank 0 on node0", 1001: "rank 0 on node0: GPU 0",
                     4000: "rank 3 on node0", 4001: "rank 3 on node0: GPU 0"}  # fmt: skip
    order = {e["pid"]: e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"}
    assert sorted(order, key=order.__getitem__) == [1000, 1001, 4000, 4001]
    assert found.events == len(events) and not found.cut
    assert {e["pid"] for e in events} == set(names), "no GPU that did nothing, and nothing of the profiler's own"
    kernels = [e for e in events if e.get("cat") == "kernel"]
    assert len({e["args"]["correlation"] for e in kernels}) == len({e["args"]["External id"] for e in kernels}) == 600
    flows = [e["id"] for e in events if e["ph"] == "s"]
    assert len(set(flows)) == len(flows) == 600
    assert 'aten::mm "µ"' in {e["name"] for e in events}


def test_annotations_have_a_track_of_their_own_beside_their_thread(tmp_path):
    event = {"ph": "X", "pid": 4242, "tid": 4242, "ts": 1.0, "dur": 9.0, "cat": "user_annotation", "name": "mine"}
    events = [event, {**event, "tid": 4300}, {**event, "name": "yours"}, {**event, "tid": 1, "name": "distdbg:step 4"}]
    path = tmp_path / "0.json"
    path.write_text(json.dumps({"baseTimeNanoseconds": BASE, "traceEvents": events}))
    merge([RankTrace(0, path)], tmp_path / "all.json.gz", print)
    found = read(tmp_path / "all.json.gz")["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in found if e["name"] == "thread_name"}
    where = [(e["name"], names.get(e["tid"], e["tid"])) for e in found if e["ph"] == "X"]
    mine, other = "annotations of thread 4242", "annotations of thread 4300"
    assert where == [("mine", mine), ("mine", other), ("yours", mine), ("distdbg:step 4", 1)]
    assert len(names) == 2


def test_times_count_from_one_base_wherever_it_stands(tmp_path):
    traces = (trace(tmp_path / "a", 0), trace(tmp_path / "b", 1, base=BASE + 5_000_000),
              trace(tmp_path / "c", 2, base=BASE - 2_000_000, at_end=True))  # fmt: skip
    _, events = merged(tmp_path, *traces)
    first = {
        rank: min(e["ts"] for e in events if e["pid"] == (rank + 1) * 1000 and e["ph"] == "X") for rank in range(3)
    }
    assert first == {0: 100.5, 1: 5100.5, 2: -1899.5}


@pytest.mark.parametrize("plain", [True, False])
def test_a_trace_that_is_cut_off_is_used_as_far_as_it_goes(tmp_path, plain):
    whole = trace(tmp_path / "a", 0, plain=plain)
    short = trace(tmp_path / "b", 1, plain=plain, cut=whole.path.stat().st_size // 3)
    found, events = merged(tmp_path, whole, short)
    assert "cut short after" in found.cut[short.path] and list(found.cut) == [short.path]
    count = [sum(e["pid"] == pid and e["ph"] == "X" for e in events) for pid in (1000, 2000)]
    assert count[0] == 300 > count[1] > 50


def test_files_that_are_no_traces_are_named(tmp_path):
    (tmp_path / "text").write_text("step 1 took 3 ms\n")
    (tmp_path / "empty").touch()
    bad = [RankTrace(rank, tmp_path / name) for rank, name in ((1, "text"), (2, "empty"), (3, "gone"))]
    found, _ = merged(tmp_path, trace(tmp_path / "a", 0), *bad)
    assert {path.name for path in found.cut} == {"text", "empty", "gone"}
    with pytest.raises(EvidenceUnreadable, match="not JSON"):
        merge(bad, tmp_path / "none", lambda _: None)
    assert not (tmp_path / "none").exists()


def test_hosts_whose_clocks_nobody_knows_are_said_to_be_so(tmp_path):
    found, _ = merged(tmp_path, trace(tmp_path / "a", 0), trace(tmp_path / "b", 1, host="node1"))
    assert [clock.offset_us for clock in found.clocks] == [0.0, None]


def test_it_says_how_far_it_is_before_each_trace(tmp_path):
    said, target = [], tmp_path / "profile" / "merged.json.gz"
    traces = [trace(tmp_path / f"{n}", rank, host=f"node{n % 2}") for n, rank in enumerate((0, 3, 7))]
    merge(traces, target, lambda words: said.append((words, target.exists())))
    words = ["comparing the clocks of the hosts"]
    words += [f"merging rank {rank}, {n} of 3" for n, rank in enumerate((0, 3, 7), 1)]
    assert said == [(text, False) for text in words]


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match="cannot be written"):
        merge([trace(tmp_path / "a", 0)], tmp_path / "file" / "merged", lambda _: None)


def test_profiles_whose_steps_overlap_are_one_set(tmp_path):
    attempt = RunDir(tmp_path).attempt(1)
    for rank, names in ((0, ("20-25", "40-44")), (1, ("20-25", "42-46")), (2, ("20-22", "90-91"))):
        attempt.rank(rank).profile.mkdir(parents=True)
        for name in names:
            trace(attempt.rank(rank).profile / f"steps-{name}.json.gz", rank, count=2)
    (attempt.rank(0).profile / "steps-x.json.gz").touch()
    sets = sets_of(attempt)
    assert [(s.first, s.last, sorted(s.files)) for s in sets] == [(20, 25, [0, 1, 2]), (40, 46, [0, 1]), (90, 91, [2])]
    assert not sets[0].merged()
    found = sets[0].merge(lambda _: None)
    assert found.path.name == "merged-steps-20-25.json.gz" and sets[0].merged()
