"""The timeline of collectives: which numbers are shown, what is odd, who is late, and which ranks look the same."""

from distdbg.diagnosis.timeline.groups import groups
from distdbg.diagnosis.waits.collectives import group_timelines
from distdbg.evidence.recorder.log import Signatures
from tests.made_dump import WAITS, made_dump, rank_dump, recorder

GO = [("all_reduce", 10 - n, True) for n in range(8)]


def timeline_of(logs, *, missing=(), per_node=2, **options):
    """`logs` is {rank: operations of group 0, from number 1}."""
    signatures = Signatures()
    ranks = {
        r: rank_dump(r, WAITS, recorder=recorder(signatures, ("0", ops, 1)), per_node=per_node)
        for r, ops in logs.items()
    }
    ranks |= {r: rank_dump(r, WAITS) for r in missing}
    dump = made_dump(ranks, signatures=signatures)
    return group_timelines(dump, groups(dump, {}), **options)


def test_who_waits_and_who_never_came():
    (timeline,) = timeline_of(
        {0: [*GO, ("all_reduce", 2, False)], 1: GO, 2: [*GO, ("all_reduce", 2, False)]}, columns=4
    )
    assert timeline.columns == (6, 7, 8, 9) and timeline.stuck
    waiting, behind = timeline.lanes
    assert waiting.ranks.text() == "0,2" and waiting.open_s == 2.0
    assert [op and op.done for op in waiting.ops] == [True, True, True, False]
    assert behind.ranks.text() == "1" and behind.ops[-1] is None and behind.open_s is None
    assert timeline.legend == ("all_reduce float32[64]",)


def test_the_minority_is_odd_and_a_tie_is_odd_on_both_sides():
    waits, other = [*GO, ("all_reduce", 1, False)], [*GO, ("barrier", 1, False)]
    (timeline,) = timeline_of({0: waits, 1: other, 2: waits})
    assert {lane.ranks.text(): lane.ops[-1].odd for lane in timeline.lanes} == {"0,2": False, "1": True}
    (timeline,) = timeline_of({0: waits, 1: other})
    assert all(lane.ops[-1].odd for lane in timeline.lanes)


def test_the_place_where_ranks_part_is_shown_however_far_one_went_on():
    far = [("all_reduce", 100 - n / 10, True) for n in range(400)]
    (timeline,) = timeline_of({0: far, 1: far[:200]}, columns=8)
    assert (
        201 in timeline.columns and 200 in timeline.columns and 400 in timeline.columns and len(timeline.columns) == 8
    )
    assert list(timeline.columns) == sorted(timeline.columns)


def test_an_old_open_operation_is_shown():
    left_open = [("all_reduce", 100 - n / 10, n != 40) for n in range(200)]
    (timeline,) = timeline_of({0: left_open, 1: left_open})
    assert 41 in timeline.columns


def test_only_ranks_of_one_node_are_compared_in_time():
    late = [(name, before - 0.5, done) for name, before, done in GO]
    (same,) = timeline_of({0: GO, 1: late})
    assert [round(lane.ops[-1].late_s, 3) for lane in same.lanes] == [0.0, 0.5]
    (apart,) = timeline_of({0: GO, 1: late}, per_node=1)
    assert all(op.late_s == 0 for lane in apart.lanes for op in lane.ops)


def test_a_member_that_never_called_anything_is_a_lane_and_one_without_a_recorder_is_none():
    (timeline,) = timeline_of({0: [("barrier", 5, False)], 1: []}, missing=(2,))
    assert [(lane.ranks.text(), lane.last) for lane in timeline.lanes] == [("0", 1), ("1", 0)]
    assert timeline.members.text() == "0-2"


def test_few_ranks_each_have_a_lane_and_many_are_folded():
    logs = dict.fromkeys(range(40), GO)
    assert len(timeline_of(logs, fold_above=40)[0].lanes) == 40
    assert len(timeline_of(logs, fold_above=16)[0].lanes) == 1


def test_groups_that_look_the_same_are_one():
    signatures = Signatures()
    ranks = {}
    for rank in range(64):
        stuck = rank == 63
        ops = [*GO[:-1], ("all_reduce", 1, not stuck)]
        log = recorder(signatures, (str(1 + rank // 8), ops, 1, "mesh_tp"))
        ranks[rank] = rank_dump(rank, WAITS, recorder=log)
    dump = made_dump(ranks, signatures=signatures)
    first, rest = group_timelines(dump, groups(dump, {}))
    assert first.members.text() == "56-63" and first.alike == 0 and first.stuck
    assert rest.alike == 6 and not rest.stuck


def test_nothing_known_gives_nothing():
    dump = made_dump({0: WAITS})
    assert group_timelines(dump, groups(dump, {})) == []
