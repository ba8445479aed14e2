"""Trends of a run's memory become findings; healthy runs that look like them get none."""

from dataclasses import replace

import pytest

from distdbg.diagnosis.rules import all_rules
from distdbg.evidence.host.gpus import GpuCourse, OtherProcess
from distdbg.evidence.memory.analysis import analyse
from distdbg.evidence.memory.growth import Child, Cycle, MemorySeries, NodeMemory, Point, node_memory, rank_series
from distdbg.evidence.memory.thresholds import MIB
from distdbg.evidence.run import GuardFact, NodeRecord, RankRecord, RunEvidence
from tests.made_snapshot import Made, forward, snapshot, train

GIB = 1 << 30
LIST = {
    "type": "list", "name": "losses", "file": "/home/me/train.py", "lines": [19], "length": 127,
    "bytes_a_step": 900_000, "graph": False, "of": "Tensor", "epochs": 2,
}  # fmt: skip


def points(steps=400, epochs=lambda s: s // 100, **columns):
    return tuple(
        Point(
            step=s, epochs=epochs(s), **{"anon": 300 * MIB} | {name: int(shape(s)) for name, shape in columns.items()}
        )
        for s in range(0, steps, 5)
    )


def run(*ranks, headroom=None):
    records = tuple(RankRecord(n, n, 0, "host", memory=memory) for n, memory in enumerate(ranks))
    node = NodeRecord(0, "host", memory=NodeMemory(headroom, "the machine", path="nodes/0/metrics.jsonl"))
    return RunEvidence({}, 1, records, (node,))


def found(evidence):
    ours = ("memory_leak", "host_memory_growth", "fragmentation", "untracked_gpu_memory", "reference_cycle")
    return [finding for rule in all_rules() if rule.name in ours for finding in rule.run(evidence)]


def series(*args, growing=(), loads=True, **columns):
    return MemorySeries(points(*args, **columns), "ranks/0", growing, 256, 7, loads)


def test_growth_names_its_slope_and_its_end():
    sick = series(anon=lambda s: 300 * MIB + s * MIB)
    (finding,) = found(run(sick, sick, series(), headroom=800 * MIB))
    assert finding.id == "host-memory-growth" and finding.ranks == (0, 1) and finding.confidence == "likely"
    assert "1.0" in finding.summary and "step 795" in finding.summary


def test_the_remedy_knows_what_has_been_looked_at():
    grows = {"anon": lambda s: 300 * MIB + s * MIB}
    (counted,) = found(run(series(**grows)))
    assert "--memory" not in counted.remedy and "step 256" in counted.remedy
    (early,) = found(run(replace(series(**grows), counted_at=None)))
    assert "--memory" not in early.remedy
    evidence = run(None)
    node = replace(evidence.nodes[0], memory=NodeMemory(None, "", {0: points(**grows)}, "m.jsonl"))
    (without,) = found(replace(evidence, nodes=(node,)))
    assert "--memory" in without.remedy
    findings = {finding.id: finding for finding in found(run(series(**grows, growing=(LIST,))))}
    assert "`memory-leak`" in findings["host-memory-growth"].remedy


def test_within_the_first_epoch_nothing_is_said_unless_the_end_is_near():
    first = series(anon=lambda s: 300 * MIB + s * MIB, epochs=lambda s: 0)
    assert found(run(first, headroom=100 * GIB)) == []
    (near,) = found(run(first, headroom=200 * MIB))
    assert near.confidence == "possible"
    without = series(anon=lambda s: 300 * MIB + s * MIB, epochs=lambda s: -1)
    assert [f.confidence for f in found(run(without, headroom=100 * GIB))] == ["possible"], "there is no loader at all"


def test_longer_sequences_are_no_growth_unless_the_end_is_near():
    """What a step gives back at its end grows, too. A leak's steps need as much as ever beyond what is kept."""
    grows = {"anon": lambda s: 300 * MIB + s * MIB, "epochs": lambda s: -1}
    assert found(run(series(**grows, within=lambda s: 50 * MIB + s % 7 * MIB), headroom=100 * GIB))
    longer = series(**grows, within=lambda s: 50 * MIB + s * MIB / 8)
    assert found(run(longer, headroom=100 * GIB)) == []
    (near,) = found(run(longer, headroom=200 * MIB))
    assert near.confidence == "possible" and "Each step needs more than those before, too" in near.cause
    columns = {name: lambda s: s * 64 * MIB for name in ("standing", "allocated", "reserved", "used")}
    columns |= {"total": lambda s: 2000 * GIB, "peak": lambda s: s * 80 * MIB}
    assert found(run(series(**columns))) == [], "on the device, too"
    assert found(run(series(**{**columns, "peak": lambda s: s * 64 * MIB + GIB})))


def test_an_array_that_is_filled_ends_by_itself_where_there_is_room_for_it():
    """All that may be written to was asked for at the start: 1,000 MiB in all."""
    grows = {"anon": lambda s: 300 * MIB + s * MIB, "epochs": lambda s: -1}
    filled = series(**grows, asked=lambda s: 1300 * MIB + s % 3 * MIB)
    assert found(run(filled)) == found(run(filled, headroom=700 * MIB)) == []
    (short,) = found(run(filled, headroom=500 * MIB))
    assert "step 895" in short.summary
    assert found(run(series(**grows, asked=lambda s: 1300 * MIB + s * MIB), headroom=100 * GIB)), "asked for as it goes"


def test_what_is_left_is_of_the_step_at_which_it_was_looked_at():
    """500 MiB at step 300 are gone at step 800, whatever step the rank's own newest line is of."""
    evidence = run(series(anon=lambda s: 300 * MIB + s * MIB), headroom=500 * MIB)
    for looked, end in ((300, 800), (395, 895)):
        memory = replace(evidence.nodes[0].memory, steps={0: looked})
        (finding,) = found(replace(evidence, nodes=(replace(evidence.nodes[0], memory=memory),)))
        assert f"step {end}" in finding.summary


def test_the_agents_figures_do_not_overrule_the_ranks_own():
    evidence = run(series(asked=lambda s: 2 * GIB))
    memory = NodeMemory(None, "", {0: points(anon=lambda s: GIB + s * MIB)}, "m.jsonl")
    assert found(replace(evidence, nodes=(replace(evidence.nodes[0], memory=memory),))) == []


def test_the_agents_own_figures_do_where_there_are_no_lines():
    evidence = run(None)
    node = replace(evidence.nodes[0], memory=NodeMemory(None, "", {0: points(anon=lambda s: GIB + s * MIB)}, "m.jsonl"))
    (finding,) = found(replace(evidence, nodes=(node,)))
    assert finding.evidence[0].path == "m.jsonl" and "full" not in finding.summary


def with_workers(*sizes, epochs=lambda s: s // 100):
    lines = [(n, {"ranks": [{"rank": 0, "step": s, "anon": 300 * MIB, "epochs": epochs(s), "children": [
              [70 + w, int(size(s)), "pt_data_worker"] for w, size in enumerate(sizes)]}]})
             for n, s in enumerate(range(0, 400, 5))]  # fmt: skip
    evidence = run(series())
    return replace(evidence, nodes=(replace(evidence.nodes[0], memory=node_memory(lines, "nodes/0/metrics.jsonl")),))


def test_a_loaders_worker_that_grows_is_named():
    (finding,) = found(with_workers(lambda s: (300 + s) * MIB, lambda s: 300 * MIB))
    assert finding.id == "host-memory-growth" and finding.ranks == (0,)
    assert finding.ranks == (0,) and "worker 70" in finding.summary and "1.00 MiB" in finding.summary
    assert finding.evidence[0].path == "nodes/0/metrics.jsonl" and "process 70" in finding.evidence[0].where
    assert found(with_workers(lambda s: (300 + s) * MIB, epochs=lambda s: 0)) == [], "its first epoch may fill a cache"
    assert found(with_workers(lambda s: (300 + min(s, 150)) * MIB)) == []


def test_what_workers_take_brings_the_end_nearer():
    """Two MiB a step by the rank and its two workers together; a third is gone, and has given back what it had."""
    grows = lambda s: (300 + s) * MIB  # noqa: E731
    evidence = with_workers(lambda s: (300 + s / 2) * MIB, lambda s: (300 + s / 2) * MIB)
    memory = evidence.nodes[0].memory
    gone = Child(79, "pt_data_worker", tuple((s, grows(s), s // 100) for s in range(0, 300, 5)))
    memory = replace(memory, headroom=800 * MIB, of="the machine", children={0: (*memory.children[0], gone)})
    evidence = replace(evidence, nodes=(replace(evidence.nodes[0], memory=memory),))
    ranks = (replace(evidence.ranks[0], memory=series(anon=grows)),)
    worker, rank = found(replace(evidence, ranks=ranks))
    assert "worker 70" in worker.summary and "512 KiB" in worker.summary and "2 more" in worker.summary
    assert "step 795" in worker.summary and "step 795" in rank.summary


def test_a_worker_in_its_first_epoch_is_reported_where_the_end_is_near():
    evidence = with_workers(lambda s: (300 + s) * MIB, epochs=lambda s: 0)
    for room, expected in ((100 * GIB, []), (200 * MIB, ["possible"])):
        memory = replace(evidence.nodes[0].memory, headroom=room)
        near = replace(evidence, nodes=(replace(evidence.nodes[0], memory=memory),))
        assert [f.confidence for f in found(near)] == expected


def test_a_container_is_named_with_its_line_and_explains_the_growth():
    sick = series(anon=lambda s: 300 * MIB + s * MIB, growing=(LIST,))
    leak, growth = found(run(sick, sick, headroom=800 * MIB))[::-1]
    if leak.id != "memory-leak":
        leak, growth = growth, leak
    assert "`losses` (train.py:19)" in leak.summary and leak.ranks == (0, 1) and leak.confidence == "certain"
    assert "step" in leak.summary
    assert growth.explained_by == "memory-leak"


@pytest.mark.parametrize(
    ("entry", "loads", "reported"),
    [
        ({}, True, True),
        ({"epochs": 0}, True, False),  # an epoch's own list
        ({"epochs": 0}, False, True),  # no loader: no epoch to wait for
        ({"epochs": 0, "type": "dict"}, False, False),  # a cache may end
        ({"epochs": 1, "type": "dict"}, True, True),
        ({"epochs": 0, "graph": True}, True, True),  # a graph is a mistake at once
    ],
)
def test_what_may_still_be_let_go_is_not_reported(entry, loads, reported):
    assert bool(found(run(series(growing=({**LIST, **entry},), loads=loads)))) is reported


def test_a_ring_is_reported_only_where_there_is_no_room_for_all_of_it():
    """It has 100 entries at step 256, one more a step, and may have 1,000: at step 1,156."""
    ring = {**LIST, "type": "deque", "length": 100, "rate": 1.0, "most": 1000, "epochs": 0, "bytes_a_step": MIB}
    lines = {"anon": lambda s: 300 * MIB + s * MIB, "epochs": lambda s: -1, "growing": (ring,), "loads": False}
    assert findings_of(series(**lines)) == findings_of(series(**lines), headroom=800 * MIB) == {}
    findings = findings_of(series(**lines), headroom=700 * MIB)
    assert "1,000" in findings["memory-leak"].cause and "step 1,156" in findings["memory-leak"].cause
    assert findings["host-memory-growth"].explained_by == "memory-leak"
    small = {**lines, "growing": ({**ring, "bytes_a_step": MIB // 10},)}
    assert set(findings_of(series(**small), headroom=800 * MIB)) == {"host-memory-growth"}, "it is not the ring"


def findings_of(*args, **kwargs):
    return {finding.id: finding for finding in found(run(*args, **kwargs))}


def test_a_small_container_has_its_own_figures_and_explains_no_growth():
    small = {**LIST, "bytes_a_step": 5120}
    findings = findings_of(series(anon=lambda s: 300 * MIB + s * 4 * MIB, growing=(small,)), headroom=80 * GIB)
    assert "`losses` (train.py:19): 5.00 KiB" in findings["memory-leak"].summary
    growth = findings["host-memory-growth"]
    assert growth.explained_by is None and "step 256" in growth.remedy


def test_two_that_are_most_of_it_together_explain_it():
    half = {**LIST, "bytes_a_step": 0.4 * MIB}
    findings = findings_of(
        series(anon=lambda s: 300 * MIB + s * MIB, growing=(half, {**half, "name": "others", "lines": [7]}))
    )
    assert findings["host-memory-growth"].explained_by == "memory-leak"
    assert "410 KiB" in findings["memory-leak"].summary


@pytest.mark.parametrize("graph", [False, True])
def test_a_container_on_the_device_has_the_devices_figures(graph):
    """Beside it the host grows a little, which ends much later. Of a graph the bytes are known by that alone."""
    size = 4 if graph else 64 * MIB
    on_gpu = {**LIST, "bytes_a_step": size, "device_a_step": size, "graph": graph}
    columns = {name: lambda s: s * 64 * MIB for name in ("standing", "allocated", "reserved", "used")}
    columns |= {"total": lambda s: 80 * GIB, "anon": lambda s: 300 * MIB + s * MIB / 5}
    findings = findings_of(series(growing=(on_gpu,), **columns), headroom=80 * GIB)
    assert findings["memory-leak"].summary.endswith(
        "64.0 MiB more a step, and its GPU would be full at about step 1,280"
    )
    assert findings["host-memory-growth"].explained_by == ("memory-leak" if graph else None)
    assert len(findings) == 2, "the device's own finding would say it again"
    (known,) = found(run(series(growing=({**on_gpu, "epochs": 1},))))
    assert ("4 B" if graph else "64.0 MiB") in known.summary and "full" not in known.summary


def test_within_the_first_epoch_a_device_that_is_nearly_full_is_reported():
    columns = {name: lambda s: s * 64 * MIB for name in ("standing", "allocated", "reserved", "used")}
    lines = {**FLAT, **columns, "epochs": lambda s: 0}
    assert found(run(series(**lines))) == []
    near = {**lines, "total": lambda s: 40 * GIB}
    (finding,) = found(run(series(**near)))
    assert finding.confidence == "possible" and "step 640" in finding.summary
    entry = {**LIST, "bytes_a_step": 64 * MIB, "device_a_step": 64 * MIB, "epochs": 0}
    assert found(run(series(**lines, growing=(entry,)))) == []
    unknown = {**near, "epochs": lambda s: -1}
    assert [finding.confidence for finding in found(run(series(**unknown)))] == ["possible"], "there is no loader"
    (named,) = found(run(series(**near, growing=(entry,))))
    assert "`losses`" in named.summary and "step 640" in named.summary
    small = {**entry, "bytes_a_step": MIB, "device_a_step": MIB}
    assert "`losses`" not in found(run(series(**near, growing=(small,))))[0].summary


def test_within_the_first_epoch_a_list_that_fills_the_machine_is_reported():
    lines = {"anon": lambda s: 300 * MIB + s * MIB, "epochs": lambda s: 0, "growing": ({**LIST, "epochs": 0},)}
    assert findings_of(series(**lines), headroom=100 * GIB) == {}
    findings = findings_of(series(**lines), headroom=200 * MIB)
    assert findings["memory-leak"].confidence == "possible" and "step 595" in findings["memory-leak"].summary
    assert findings["host-memory-growth"].explained_by == "memory-leak"


def test_what_an_epoch_adds_is_reported_by_the_epoch():
    stairs = {"anon": lambda s: 300 * MIB + s // 100 * 500 * MIB}
    (finding,) = found(run(series(600, **stairs), headroom=10 * GIB))
    assert finding.ranks == (0,) and "500 MiB an epoch" in finding.summary
    assert found(run(series(400, **stairs))) == [], "so few could be a start"
    (finding,) = found(run(series(600, **{**FLAT, "standing": lambda s: 2 * GIB + s // 100 * 500 * MIB})))
    assert "500 MiB" in finding.summary and "epoch" in finding.summary


def test_graphs_that_a_guard_has_found_explain_the_growth():
    evidence = run(series(anon=lambda s: 300 * MIB + s * MIB))
    rank = replace(evidence.ranks[0], guards=(GuardFact(0, "graph-retained", {}),))
    (finding,) = found(replace(evidence, ranks=(rank,)))
    assert finding.explained_by == "graph-retained"


def test_cycles_are_reported_once_two_counts_have_seen_them():
    cycle = Cycle(40, 40 * MIB, "Batch (train.py)", 128, 9)
    sick = replace(series(), cycles=(cycle, replace(cycle, bytes=8 * MIB)))
    (finding,) = found(run(sick, sick, series()))
    assert finding.id == "reference-cycle" and finding.ranks == (0, 1) and finding.evidence[0].line == 9
    assert "40.0 MiB of tensors" in finding.summary and "held by Batch (train.py)" in finding.summary
    assert found(run(replace(series(), cycles=(cycle,)))) == []


FLAT = {"standing": lambda s: 2 * GIB, "allocated": lambda s: 5 * GIB, "reserved": lambda s: 6 * GIB,
        "used": lambda s: 7 * GIB, "total": lambda s: 80 * GIB}  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "ids"),
    [
        ({}, []),
        ({"reserved": lambda s: 6 * GIB + s * 4 * MIB, "used": lambda s: 7 * GIB + s * 4 * MIB}, ["fragmentation"]),
        ({"reserved": lambda s: 6 * GIB + min(s, 120) * 20 * MIB, "used": lambda s: 12 * GIB}, []),
        ({"standing": lambda s: 2 * GIB + s * 4 * MIB, "allocated": lambda s: 5 * GIB + s * 4 * MIB,
          "reserved": lambda s: 6 * GIB + s * 4 * MIB, "used": lambda s: 7 * GIB + s * 4 * MIB}, ["memory-leak"]),
        ({"used": lambda s: 7 * GIB + s * 4 * MIB}, ["untracked-gpu-memory"]),
        ({"used": lambda s: 30 * GIB}, ["untracked-gpu-memory"]),
        ({"used": lambda s: 30 * GIB if s % 50 == 0 else 9 * GIB}, []),
    ],
)  # fmt: skip
def test_columns_of_a_gpu(columns, ids):
    assert [f.id for f in found(run(series(**{**FLAT, **columns})))] == ids


@pytest.mark.parametrize(
    ("gpu", "says"),
    [
        (None, "the driver's figure does not say"),
        (GpuCourse(3, 9, (0,)), "GPU 3: it is NCCL's"),
        (GpuCourse(3, 9, (0, 5)), "ranks 5 are on GPU 3"),
        (GpuCourse(3, 9, (0,), (OtherProcess(77, "python3", 2 * GIB),)), "process 77 (python3) with 2.00 GiB"),
    ],
)
def test_whose_the_rest_of_a_gpu_is(gpu, says):
    evidence = run(series(**{**FLAT, "used": lambda s: 30 * GIB}))
    node = NodeRecord(0, "here", gpus=(gpu,) if gpu else ())
    (finding,) = found(replace(evidence, nodes=(node,)))
    assert says in finding.cause


@pytest.mark.parametrize(
    ("highest", "reserved", "reported"),
    [
        (lambda s: 5 * GIB, lambda s: 6 * GIB + s * 4 * MIB, True),
        (lambda s: 5 * GIB + s * 4 * MIB, lambda s: 6 * GIB + s * 4 * MIB, False),  # a curriculum of lengths
        (lambda s: 5 * GIB if s % 50 else 6 * GIB, lambda s: 6 * GIB + s * 4 * MIB, True),  # reset by the script
        (lambda s: 20 * GIB, lambda s: 6 * GIB + s * 4 * MIB, False),  # of a search for a batch that fits: says nothing
    ],
)  # fmt: skip
def test_reserved_is_held_against_the_peak_within_a_phase(highest, reserved, reported):
    """Checkpointed activations come back in the backward, and are gone when it ends: MA stands at 3 GiB all along."""
    lines = [
        (n, {"step": s, "epochs": 0, "phases": {"backward": {
            "ANON": 300 * MIB, "MA": 3 * GIB, "Max_MA": highest(s), "CA": reserved(s), "Max_CA": reserved(s)}}})
        for n, s in enumerate(range(0, 400, 5), 1)
    ]  # fmt: skip
    assert [f.id for f in found(run(rank_series(lines, "ranks/0", [])))] == (["fragmentation"] if reported else [])


def test_a_leak_on_the_device_says_when_it_is_full():
    columns = {name: lambda s: s * 64 * MIB for name in ("standing", "allocated", "reserved", "used")}
    (finding,) = found(run(series(**{**FLAT, **columns})))
    assert "64.0 MiB" in finding.summary
    (outside,) = found(run(series(**{**FLAT, "used": lambda s: 7 * GIB + s * 4 * MIB})))
    assert "4.00 MiB" in outside.summary and "step 18,688" in outside.summary and outside.step == 395
    assert "step 1,280" in finding.summary


def test_a_leak_that_a_snapshot_names_has_its_end_too():
    made = Made()
    train(made, 20, each=lambda _: made.alloc(4 * MIB, forward(99, "log")))
    (answer,) = analyse(snapshot(made))
    lines = series(reserved=lambda s: 60 * GIB, used=lambda s: 70 * GIB, total=lambda s: 80 * GIB)
    evidence = replace(run(lines), snapshots=(replace(answer, rank=0, path="ranks/0/memory/asked.pickle.gz"),))
    (leak,) = (finding for finding in found(evidence) if finding.id == "memory-leak")
    step = lines.points[-1].step + 10 * GIB // (4 * MIB)
    assert "log" in leak.summary and f"step {step:,}" in leak.summary
