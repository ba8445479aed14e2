"""Which operation each device waits in, and whose device is at fault, by made recorders of NCCL."""

from dataclasses import replace

from distdbg.diagnosis.timeline.device import open_operations, stuck_devices
from distdbg.diagnosis.timeline.groups import groups
from distdbg.evidence.recorder.log import Signatures
from distdbg.evidence.recorder.reading import read_recorder
from tests.made_dump import T, made_dump, rank_dump

SIGNATURES = Signatures()


def log(signatures, *operations, group="0", started=(), name="all_reduce"):
    """`operations` are (number, done) or (number, done, size); the oldest was enqueued first."""
    entries = []
    for number, done, *size in operations:
        state = "completed" if done else "started" if number in started else "scheduled"
        entries.append({
            "process_group": [group, "default_pg" if group == "0" else "undefined"], "is_p2p": False,
            "collective_seq_id": number, "profiling_name": f"nccl:{name}", "input_sizes": [[*size, 4]],
            "input_dtypes": ["Float"], "state": state, "retired": done,
            "time_created_ns": int(T * 1e9) + number, "timeout_ms": 1000,
        })  # fmt: skip
    return read_recorder({"version": "2.10", "pg_config": {}, "entries": entries}, signatures)


def stuck(*, has_all_ranks=True, **logs):
    """`r0=…`: by rank, the recorder. The ranks whose device is at fault."""
    dump = made_dump({int(name[1:]): rank_dump(int(name[1:]), (), recorder=one) for name, one in logs.items()})
    dump = replace(dump, has_all_ranks=has_all_ranks)
    known = groups(dump, {})
    return sorted(stuck_devices(known, open_operations(dump, known), SIGNATURES))


def test_a_device_that_alone_does_not_complete():
    done, open_ = log(SIGNATURES, (1, True), (2, True), (3, False)), log(SIGNATURES, (1, True), (2, False), (3, False))
    assert stuck(r0=done, r1=open_, r2=done) == [1]


def test_a_device_that_alone_does_not_start():
    begun, waits = (
        log(SIGNATURES, (1, True), (2, False), started=(1, 2)),
        log(SIGNATURES, (1, True), (2, False), started=(1,)),
    )
    waits.groups["0", "nccl"].started = False
    assert stuck(r0=begun, r1=waits, r2=begun) == [1]


def test_unknown_job_size_leaves_unread_ranks_unjudged():
    """Another rank may not have come, unless one device has completed the operation, or one alone has not begun it."""
    open_ = log(SIGNATURES, (1, True), (2, False))
    assert stuck(r0=open_, r1=open_, has_all_ranks=False) == []
    assert stuck(r0=open_, has_all_ranks=False) == []
    assert stuck(r0=open_) == [0], "the only rank of its job"
    done = log(SIGNATURES, (1, True), (2, True))
    assert stuck(r0=done, r1=open_, has_all_ranks=False) == [1]
    begun, waits = (log(SIGNATURES, (1, True), (2, False), started=of) for of in ((1, 2), (1,)))
    waits.groups["0", "nccl"].started = False
    assert stuck(r0=begun, r1=waits, has_all_ranks=False) == [1]


def test_a_device_that_waits_in_a_broadcast_is_not_at_fault():
    """The root and who is near it have completed their part; rank 3 waits for rank 2, whose device has not begun."""
    done = log(SIGNATURES, (1, True), (2, True), name="broadcast", started=(1, 2))
    late, waits = (log(SIGNATURES, (1, True), (2, False), name="broadcast", started=of) for of in ((1,), (1, 2)))
    late.groups["0", "nccl"].started = False
    assert stuck(r0=done, r1=done, r2=late, r3=waits) == [2]
    assert stuck(r0=done, r1=done, r2=late, r3=late) == [2, 3]
    untimed = log(SIGNATURES, (1, True), (2, False), name="broadcast")
    assert stuck(r0=done, r1=done, r2=untimed, r3=untimed) == []


def test_members_that_another_group_tells_are_not_those_of_this_one():
    """Rank 2 may be in group 1 as well, and not have come."""
    both, done = log(SIGNATURES, (5, False), group="1"), log(SIGNATURES, (5, True), group="1")
    for one in (both, done):
        one.groups |= log(SIGNATURES, (4, True), group="2").groups
        one.groups["2", "nccl"].ranks = (0, 1)
    assert stuck(r0=both, r1=done, r2=log(SIGNATURES, (1, True))) == []


def test_a_rank_of_which_no_operation_is_kept():
    """A log of the watchdog may say how far a rank has come, and no more."""
    counted = log(SIGNATURES, (1, True))
    group = counted.groups["0", "nccl"]
    group.sequence, group.signature, group.created, group.done = (), type(group.signature)("I"), (), bytearray()
    group.enqueued = 4
    assert stuck(r0=log(SIGNATURES, (4, False)), r1=counted) == []


def test_nobody_is_named_without_start_times():
    assert stuck(r0=log(SIGNATURES, (1, False)), r1=log(SIGNATURES, (1, False))) == []


def test_no_device_is_at_fault_while_a_host_has_not_come():
    assert stuck(r0=log(SIGNATURES, (1, True), (2, False)), r1=log(SIGNATURES, (1, True))) == []


def test_no_device_is_at_fault_where_the_operations_differ():
    assert (
        stuck(
            r0=log(SIGNATURES, (1, True), (2, False)),
            r1=log(SIGNATURES, (1, True), (2, True, 9)),
            r2=log(SIGNATURES, (1, True), (2, True)),
        )
        == []
    )


def test_the_oldest_of_several_groups_counts():
    both = log(SIGNATURES, (5, False))
    both.groups |= log(SIGNATURES, (2, False), group="1").groups
    dump = made_dump({0: rank_dump(0, (), recorder=both), 1: rank_dump(1, (), recorder=log(SIGNATURES, (5, True)))})
    known = groups(dump, {})
    opened = open_operations(dump, known)
    assert opened.keys() == {0} and known[opened[0].group].name == "1" and opened[0].sequence == 2
    assert not stuck_devices(known, opened, SIGNATURES)  # nobody says who else is in group 1
    both.groups["1", "nccl"].ranks = (0,)
    known = groups(dump, {})
    assert stuck_devices(known, open_operations(dump, known), SIGNATURES).keys() == {0}
