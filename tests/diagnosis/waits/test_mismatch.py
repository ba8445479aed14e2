"""The earliest operation that the members of a group do not agree on, whoever comes first in the dump."""

from itertools import permutations

from distdbg.diagnosis.timeline.groups import Group
from distdbg.diagnosis.waits.mismatch import LeftOut, earliest_mismatch, left_out
from distdbg.evidence.recorder.log import GroupLog, Signature, Signatures
from distdbg.evidence.recorder.reading import read_recorder
from tests.made_dump import T, recorder


def group(logs, signatures, name="0", **options):
    read = {
        rank: recorder(signatures, (name, operations, first)).groups[name, "gloo"]
        for rank, (first, operations) in logs.items()
    }
    return Group(name, tuple(sorted(read)), read, **options)


def ops(*names, ago=20, open_last=False):
    return [(name, ago - n, not (open_last and n == len(names) - 1)) for n, name in enumerate(names)]


def first(logs, **options):
    signatures = Signatures()
    groups = [group(logs, signatures)]
    return earliest_mismatch(groups, signatures, dict.fromkeys(logs), **options)


A, B, C = "all_reduce", "barrier", "broadcast"


def test_the_minority_and_the_majority():
    found = first({0: (1, ops(A, A, B)), 1: (1, ops(A, B, A)), 2: (1, ops(A, A, B)), 3: (1, ops(A, A, B))})
    assert (found.sequence, found.few, found.many, found.tie) == (2, (1,), (0, 2, 3), False)
    assert [s.signature.operation for s in found.sides] == [A, B]


def test_a_tie_names_both_sides():
    found = first({0: (1, ops(A)), 1: (1, ops(B)), 2: (1, ops(A)), 3: (1, ops(B))})
    assert (found.tie, found.few, found.many) == (True, (0, 1, 2, 3), ())


def skipped(before, one, other):
    """What `left_out` says of two ranks that did `before` and then differ."""
    found = first({0: (1, ops(*before, one)), 1: (1, ops(*before, other))})
    return found and left_out(found)


def test_of_two_the_one_has_left_out_what_always_came_here():
    step = (A, A, C, B)
    assert skipped(step * 4 + (A, A), B, C) == LeftOut((0,), 3)
    assert skipped(step * 4 + (A, A), A, C) == LeftOut((0,), 3), "the rest of the step"
    assert skipped(step * 4 + (A, A), C, B) == LeftOut((1,), 3)
    assert skipped(step * 4 + (A,), C, A) == LeftOut((0,), 3)


def test_the_past_does_not_say_who_is_right_where_it_knows_no_such_step():
    assert skipped((A, A, C, B) * 2 + (A, A), B, C) is None, "twice is no rule"
    assert skipped((A,) * 40, B, A) is None, "a first barrier may be meant"
    assert skipped((A,) * 9 + (B,) + (A,) * 4 + (B,) + (A,) * 4, B, A) is None, "steps of many lengths"
    assert skipped((), B, A) is None


def test_three_sides_of_which_the_largest_is_right():
    found = first({0: (1, ops(A)), 1: (1, ops(B)), 2: (1, ops(A)), 3: (1, ops(C))})
    assert (found.few, found.many) == ((1, 3), (0, 2))
    assert not found.same_operation


def test_a_rank_that_is_behind_differs_from_nobody():
    assert first({0: (1, ops(A, A, B)), 1: (1, ops(A, A)), 2: (1, ops(A))}) is None
    assert first({0: (1, ops(A))}) is None


def test_rings_that_have_kept_different_numbers():
    found = first({0: (5, ops(A, A, B)), 1: (6, ops(A, A)), 2: (1, ops(A, A, A, A, A, A, B))})
    assert (found.sequence, found.few) == (7, (1,))
    assert first({0: (100, ops(A)), 1: (1, ops(B))}) is None, "they have kept no number in common"


def test_numbers_that_are_missing_from_the_middle():
    signatures = Signatures()
    number = {name: signatures.add(Signature(name, (), "")) for name in (A, B)}
    from array import array

    def log(sequence, names):
        return GroupLog("0", "default_pg", array("q", sequence), array("I", [number[n] for n in names]),
                        array("q", [int(T)] * len(names)), bytearray(len(names)))  # fmt: skip

    logs = {0: log([1, 2, 4, 5], [A, A, A, A]), 1: log([1, 3, 4, 5], [A, B, A, B]), 2: log([1, 2, 4, 5], [A, A, A, A])}
    found = earliest_mismatch([Group("0", (0, 1, 2), logs)], signatures, {})
    assert (found.sequence, found.few) == (5, (1,))


def test_sizes_differ_where_they_must_agree_and_may_where_not():
    def sized(size, operation):
        entry = {
            "process_group": ["0", "default_pg"], "is_p2p": False, "collective_seq_id": 1, "timeout_ms": 1,
            "profiling_name": f"nccl:{operation}", "input_sizes": [[size]], "input_dtypes": ["Float"],
            "state": "scheduled", "retired": False, "time_created_ns": 1,
        }  # fmt: skip
        return read_recorder({"version": "2.10", "pg_config": {}, "entries": [entry]}, signatures).groups["0", "nccl"]

    for operation, differs in (
        ("all_reduce", True),
        ("_allgather_base", True),
        ("all_to_all", False),
        ("scatter", False),
    ):
        signatures = Signatures()
        logs = {0: sized(64, operation), 1: sized(32, operation), 2: sized(64, operation)}
        found = earliest_mismatch([Group("0", (0, 1, 2), logs)], signatures, {0: None, 1: None, 2: None})
        assert (found is not None) is differs, operation
        if found is not None:
            assert (found.same_operation, found.few, found.open) == (True, (1,), True)


def test_of_two_groups_the_one_that_differed_first():
    signatures = Signatures()
    late = group({0: (1, ops(A, ago=5)), 1: (1, ops(B, ago=5))}, signatures, "1")
    early = group({2: (1, ops(A, ago=9)), 3: (1, ops(B, ago=9))}, signatures, "7")
    for groups in ([late, early], [early, late]):
        assert earliest_mismatch(groups, signatures, {}).group.name == "7"


def test_open_where_somebody_still_waits_there():
    assert not first({0: (1, ops(A, A)), 1: (1, ops(B, A)), 2: (1, ops(A, A))}).open
    assert first({0: (1, ops(A)), 1: (1, ops(B, open_last=True)), 2: (1, ops(A))}).open


def test_the_order_of_ranks_does_not_matter():
    logs = {0: (1, ops(A, B, A)), 1: (3, ops(B)), 2: (1, ops(A, A, A)), 3: (2, ops(B, A))}
    found = {(m.sequence, m.sides) for order in permutations(logs) if (m := first({r: logs[r] for r in order}))}
    assert len(found) == 1 and found.pop()[0] == 2
