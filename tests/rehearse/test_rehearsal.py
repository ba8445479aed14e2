"""What a rehearsal shows, from made records: peaks, the collectives of one step, what differs between ranks."""

from dataclasses import replace

import pytest

from distdbg.evidence.memory.growth import MemorySeries, Point
from distdbg.evidence.recorder.schedule import Enqueued
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.evidence.stacks.threads import Frame
from distdbg.model import fold_ranks
from distdbg.protocol.chosen_ranks import ChosenRanks
from distdbg.rehearse.rehearsal import rehearsal

GIB = 1 << 30
LINE = Frame("train", "/home/me/train.py", 9)


def evidence(ranks=4, per_node=2, groups=None, memory=None):
    records = [
        RankRecord(rank, rank % per_node, rank // per_node, f"node{rank // per_node}",
                   groups=dict(groups or {}), memory=(memory or {}).get(rank))
        for rank in range(ranks)
    ]  # fmt: skip
    return RunEvidence({}, 1, tuple(records), ())


def series(*points):
    return MemorySeries(
        tuple(Point(step, 1, highest=high, reserved=held, total=8 * GIB) for step, high, held in points)
    )


def did(operation="all_reduce", size=8, at=1, group="0", description="default_pg", line=LINE, agrees=None, number=-1):
    return Enqueued(group, description, operation, size, size if agrees is None else agrees, number, at, line)


def test_the_highest_peak_is_of_the_first_rank_that_has_it():
    run = evidence(memory={0: series((1, GIB, 2 * GIB)), 1: series((1, GIB, GIB), (2, 3 * GIB, 4 * GIB)),
                           2: series((2, 3 * GIB, 5 * GIB))})  # fmt: skip
    found = rehearsal(run, {}, {})
    assert [(p.rank, p.allocated, p.reserved, p.step) for p in found.peaks] == [
        (0, GIB, 2 * GIB, 1), (1, 3 * GIB, 4 * GIB, 2), (2, 3 * GIB, 5 * GIB, 2),
    ]  # fmt: skip
    assert found.highest.rank == 1 and found.highest.total == 8 * GIB
    assert rehearsal(evidence(), {}, {}).highest is None


def test_only_the_last_step_that_all_ranks_ended_is_shown():
    schedule = [did(at=at, size=at) for at in (1, 5, 11, 15, 21, 25)]
    found = rehearsal(evidence(), {0: schedule, 1: schedule}, {0: [10, 20, 30], 1: [10, 20]})
    (group,) = found.groups
    assert found.step == 2
    assert [(row.operation, row.count, row.bytes, row.where) for row in group.rows] == [
        ("all_reduce", 2, 26, "/home/me/train.py:9")
    ]


@pytest.mark.parametrize(("ranks", "across"), [((0, 1), False), ((0, 2), True), ((0, 1, 2, 3), True)])
def test_a_group_is_inside_a_node_or_across(ranks, across):
    run = evidence(groups={"7": ranks})
    found = rehearsal(run, {0: [did(group="7", description="mesh_tp")]}, {})
    assert [(g.title, g.ranks, g.across) for g in found.groups] == [
        (f"the tp group of ranks {fold_ranks(ranks)}", ranks, across)
    ]


def test_of_chosen_ranks_groups_have_all_their_members_and_nodes():
    chosen = ChosenRanks(2, 2, (0, 3))
    records = [RankRecord(0, 0, 0, "n", groups={"7": (0, 1)}), RankRecord(3, 1, 0, "n", groups={"7": (2, 3)})]
    run = RunEvidence({}, 1, tuple(records), ())
    schedule = [did(group="7", description="mesh_tp"), did()]
    found = rehearsal(run, {0: schedule, 3: schedule}, {}, chosen=chosen)
    assert {(g.ranks, g.across) for g in found.groups} == {((0, 1), False), ((2, 3), False), ((0, 1, 2, 3), True)}
    assert found.chosen == chosen


def numbered(*operations, first=1):
    return [replace(one, number=number) for number, one in enumerate(operations, first)]


def test_what_first_differs_between_ranks_is_named():
    ones, others = numbered(did(), did(size=4), did()), numbered(did(), did("broadcast", size=4), did())
    (group,) = rehearsal(evidence(), {0: ones, 3: others}, {}).groups
    assert "number 2" in group.difference and "rank 0" in group.difference and "broadcast" in group.difference
    (group,) = rehearsal(evidence(), {0: ones, 1: ones[:2]}, {}).groups
    assert "number 3" in group.difference and "missing" in group.difference


def test_what_a_recorder_has_dropped_is_no_difference():
    """It keeps the newest operations of all groups together: ranks with more of them keep less of this one."""
    every = numbered(did(), did("broadcast"), did(size=4), did())
    (group,) = rehearsal(evidence(), {0: every, 1: every[2:]}, {}).groups
    assert not group.difference


def test_sends_and_receives_differ_by_right():
    """As in a pipeline."""
    ones = [did("send"), *numbered(did()), did("send")]
    others = [did("recv"), did("recv"), *numbered(did())]
    (group,) = rehearsal(evidence(), {0: ones, 1: others}, {}).groups
    assert not group.difference


def test_parts_of_one_coalesced_collective_share_its_number():
    parts = [replace(did(size=size), number=1) for size in (4, 8)]
    (group,) = rehearsal(evidence(), {0: parts, 1: parts[::-1]}, {}).groups
    assert "number 1" in group.difference
    (group,) = rehearsal(evidence(), {0: parts, 1: parts}, {}).groups
    assert not group.difference


def test_sizes_that_may_differ_do_not():
    ones, others = (numbered(did("gather", size=size, agrees=8)) for size in (90, 8))
    (group,) = rehearsal(evidence(), {0: ones, 1: others}, {}).groups
    assert not group.difference


def test_groups_of_one_name_on_different_ranks_are_different_groups():
    """Tensor-parallel groups have one name on all ranks of their mesh, and other members."""
    run = evidence()
    records = [
        RankRecord(r.rank, 0, 0, "n", groups={"2": (0, 1) if r.rank < 2 else (2, 3)}) for r in run.ranks
    ]  # fmt: skip
    run = RunEvidence({}, 1, tuple(records), ())
    found = rehearsal(run, {rank: numbered(did(group="2", size=rank + 1, agrees=1)) for rank in range(4)}, {})
    assert sorted(g.ranks for g in found.groups) == [(0, 1), (2, 3)] and not any(g.difference for g in found.groups)


def test_the_order_across_groups_is_compared():
    run = evidence(ranks=2, groups={"1": (0, 1), "2": (0, 1)})
    a, b = (numbered(did(group=group, description=f"mesh_{group}")) for group in "12")
    orders = {0: [replace(a[0], at=1), replace(b[0], at=2)], 1: [replace(b[0], at=1), replace(a[0], at=2)]}
    found = rehearsal(run, orders, {})
    assert "rank 0" in found.crossed and "rank 1" in found.crossed and "train.py:9" in found.crossed
    assert rehearsal(run, {0: orders[0], 1: orders[0]}, {}).crossed == ""


def test_modules_of_one_kind_are_one_row():
    """And the order of a step has a place for each operation."""
    units = [did(at=at, size=8) for at in (1, 2, 3)]
    units = [replace(one, module=path) for one, path in zip(units, ("layers.0", "layers.1", ""), strict=True)]
    (group,) = rehearsal(evidence(), {0: units}, {}).groups
    assert [(row.module, row.count) for row in group.rows] == [("layers.*", 2), ("", 1)]
    assert group.order == ((1, 0), (2, 0), (3, 1))


def mesh_orders(*of_rank):
    """Of ranks 0 to 3 in a mesh of two rows: `tp`, or `dp`, in the order in which each rank enqueues them."""
    groups = {"tp": {0: "1", 1: "1", 2: "2", 3: "2"}, "dp": {0: "3", 1: "4", 2: "3", 3: "4"}}
    members = {"1": (0, 1), "2": (2, 3), "3": (0, 2), "4": (1, 3)}
    records = [
        RankRecord(rank, rank, 0, "n", groups={groups[name][rank]: members[groups[name][rank]] for name in groups})
        for rank in range(4)
    ]
    orders = {
        rank: [
            did(group=groups[name][rank], description=f"mesh_{name}", number=words[: at + 1].count(name), at=at)
            for at, name in enumerate(words)
        ]
        for rank, words in enumerate(map(str.split, of_rank))
    }
    return RunEvidence({}, 1, tuple(records), ()), orders


def test_crossed_order_of_mesh_groups_names_ranks_and_groups():
    """No two ranks share two groups: rank 0 waits for 1, 1 for 3, 3 for 2 and 2 for 0."""
    crossed = rehearsal(*mesh_orders("tp dp tp dp", "tp dp dp tp", "tp dp dp tp", "tp dp tp dp"), {}).crossed
    steps = crossed.split("; ")
    assert sorted(step.split(" enqueues ")[0] for step in steps) == [f"rank {rank}" for rank in range(4)]
    for words in ("the tp group of ranks 0-1", "the tp group of ranks 2-3", "the dp group of ranks 0,2"):
        assert crossed.count(f"number 2 in {words}") == 2, crossed
    assert "train.py:9" in crossed


@pytest.mark.parametrize(
    "orders", [("tp dp",) * 4, ("tp dp", "tp dp", "dp tp", "dp tp"), ("dp tp", "tp dp", "tp dp", "tp dp")]
)
def test_orders_that_differ_without_a_cycle_are_not_crossed(orders):
    assert rehearsal(*mesh_orders(*orders), {}).crossed == ""
