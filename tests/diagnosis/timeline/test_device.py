"""Which operation each device waits in, and whose device is at fault, by made recorders of NCCL."""

from distdbg.diagnosis.timeline.device import open_operations, stuck_devices
from distdbg.diagnosis.timeline.groups import groups
from distdbg.evidence.recorder.log import Signatures, read_recorder
from tests.made_dump import T, made_dump, rank_dump


def log(signatures, *operations, group="0", started=()):
    """`operations` are (number, done) or (number, done, size); the oldest was enqueued first."""
    entries = []
    for number, done, *size in operations:
        state = "completed" if done else "started" if number in started else "scheduled"
        entries.append({
            "process_group": [group, "default_pg" if group == "0" else "undefined"], "is_p2p": False,
            "collective_seq_id": number, "profiling_name": "nccl:all_reduce", "input_sizes": [[*size, 4]],
            "input_dtypes": ["Float"], "state": state, "retired": done,
            "time_created_ns": int(T * 1e9) + number, "timeout_ms": 1000,
        })  # fmt: skip
    return read_recorder({"version": "2.10", "pg_config": {}, "entries": entries}, signatures)


def stuck(**logs):
    """`r0=…`: by rank, the recorder. The ranks whose device is at fault."""
    dump = made_dump({int(name[1:]): rank_dump(int(name[1:]), (), recorder=one) for name, one in logs.items()})
    known = groups(dump, {})
    return sorted(stuck_devices(known, open_operations(dump, known)))


def test_a_device_that_alone_does_not_complete():
    s = Signatures()
    done, open_ = log(s, (1, True), (2, True), (3, False)), log(s, (1, True), (2, False), (3, False))
    assert stuck(r0=done, r1=open_, r2=done) == [1]


def test_a_device_that_alone_does_not_start():
    s = Signatures()
    begun, waits = log(s, (1, True), (2, False), started=(1, 2)), log(s, (1, True), (2, False), started=(1,))
    waits.groups["0", "nccl"].started = False
    assert stuck(r0=begun, r1=waits, r2=begun) == [1]


def test_nobody_is_named_without_start_times():
    s = Signatures()
    assert stuck(r0=log(s, (1, False)), r1=log(s, (1, False))) == []


def test_no_device_is_at_fault_while_a_host_has_not_come():
    s = Signatures()
    assert stuck(r0=log(s, (1, True), (2, False)), r1=log(s, (1, True))) == []


def test_no_device_is_at_fault_where_the_operations_differ():
    s = Signatures()
    assert (
        stuck(r0=log(s, (1, True), (2, False)), r1=log(s, (1, True), (2, True, 9)), r2=log(s, (1, True), (2, True)))
        == []
    )


def test_the_oldest_of_several_groups_counts():
    s = Signatures()
    both = log(s, (5, False))
    both.groups |= log(s, (2, False), group="1").groups
    dump = made_dump({0: rank_dump(0, (), recorder=both), 1: rank_dump(1, (), recorder=log(s, (5, True)))})
    known = groups(dump, {})
    opened = open_operations(dump, known)
    assert opened.keys() == {0} and known[opened[0].group].name == "1" and opened[0].sequence == 2
    assert stuck_devices(known, opened).keys() == {0}  # the only member of group 1
