"""A recorder's dump reduced: what is kept of it, what is left out, and that it comes back whole from a process."""

import json
import pickle

import pytest

from distdbg.evidence.recorder.log import RecorderLog, Signatures
from distdbg.evidence.recorder.packed import Unpacker, pack
from distdbg.evidence.recorder.reading import read_recorder


def entry(sequence, operation="nccl:all_reduce", *, group=("0", "default_pg"), sizes=((4, 4),), **fields):
    return {
        "process_group": list(group), "collective_seq_id": sequence, "profiling_name": operation, "state": "scheduled",
        "retired": False, "is_p2p": False, "time_created_ns": 10**18 + sequence, "timeout_ms": 600_000,
        "input_sizes": [list(s) for s in sizes], "input_dtypes": ["Float"] * len(sizes), **fields,
    }  # fmt: skip


def dump(*entries, groups=None):
    return {"version": "2.10", "pg_config": groups or {}, "entries": list(entries)}


def test_what_is_begun_and_what_is_done():
    log = read_recorder(dump(entry(1, retired=True), entry(2, state="completed"), entry(3)), Signatures())
    group = log.groups["0", "nccl"]
    assert (group.last, group.first_open, list(group.sequence), bytes(group.done)) == (3, 2, [1, 2, 3], b"\1\1\0")
    assert (group.comm, log.timeout_s, group.description) == ("nccl", 600.0, "default_pg")


def test_numbers_count_up_in_a_range_and_holes_are_kept():
    log = read_recorder(dump(entry(5), entry(6), entry(9)), Signatures()).groups["0", "nccl"]
    assert (list(log.sequence), log.index(9), log.index(7)) == ([5, 6, 9], 2, None)
    assert isinstance(read_recorder(dump(entry(5), entry(6)), Signatures()).groups["0", "nccl"].sequence, range)


def test_a_group_that_is_made_again_under_its_name_begins_anew():
    """destroy_process_group and init_process_group: what was done under the name before says nothing of this one."""
    before = [entry(n, retired=True, pg_id=0) for n in (1, 2, 3)]
    after = [entry(1, retired=True, pg_id=1), entry(2, pg_id=1)]
    log = read_recorder(dump(*before, *after), Signatures()).groups["0", "nccl"]
    assert (list(log.sequence), list(log.done), log.last, log.index(3)) == ([1, 2], [1, 0], 2, None)


def test_two_threads_in_one_group_may_be_recorded_out_of_turn():
    log = read_recorder(dump(*(entry(n, pg_id=0) for n in (1, 3, 2, 4))), Signatures()).groups["0", "nccl"]
    assert (list(log.sequence), log.index(1), log.index(3)) == ([1, 3, 2, 4], 0, 1)


def test_parts_of_one_coalesced_call_are_one():
    log = read_recorder(dump(entry(1, retired=True), entry(1), entry(2)), Signatures()).groups["0", "nccl"]
    assert (list(log.sequence), bytes(log.done)) == ([1, 2], b"\0\0")


def coalesced(*sizes):
    return [entry(1, "nccl:_broadcast_oop", sizes=(size,)) for size in sizes] + [
        entry(1, "nccl:ALLGATHER_coalesced", sizes=((),))
    ]


def test_each_part_of_a_coalesced_call_must_agree():
    def signature(signatures, *sizes):
        return read_recorder(dump(*coalesced(*sizes)), signatures).groups["0", "nccl"].signature[0]

    signatures = Signatures()
    numbers = [signature(signatures, *sizes) for sizes in (((6,), (7,)), ((6,), (7,)), ((6,), (6,)), ((7,), (6,)))]
    assert numbers[0] == numbers[1] and len(set(numbers)) == 3
    assert signatures[numbers[0]].operation == signatures[numbers[2]].operation == "broadcast"
    assert "[6]" in signatures[numbers[0]].sizes and "[7]" in signatures[numbers[0]].sizes


def test_coalesced_signatures_agree_across_processes():
    """The senders have numbered their signatures differently."""
    receiver = Signatures()
    numbers = []
    for before in ((), (entry(1), entry(1, sizes=((9,),)))):
        sender = Signatures()
        read_recorder(dump(*before), sender)
        log = read_recorder(dump(*coalesced((6,), (7,))), sender)
        head, _, body = pack(log, sender, 0).partition(b"\n")
        numbers.append(Unpacker(receiver).unpack(json.loads(head), body).groups["0", "nccl"].signature[0])
    assert numbers[0] == numbers[1]


def test_thousands_of_coalesced_parts_are_read_quickly():
    log = read_recorder(dump(*coalesced(*[(n,) for n in range(20_000)])), signatures := Signatures())
    assert len(str(signatures[log.groups["0", "nccl"].signature[0]])) < 200


def test_fields_that_may_differ_share_a_number():
    signatures = Signatures()
    one = read_recorder(dump(entry(1, "nccl:gather", sizes=((2,),)), entry(2, sizes=((3,),))), signatures)
    two = read_recorder(dump(entry(1, "nccl:all_to_all", sizes=((2,),)), entry(2, sizes=((4,),))), signatures)
    three = read_recorder(dump(entry(1, "nccl:all_to_all", sizes=((9,),)), entry(2, sizes=((3,),))), signatures)
    assert two.groups["0", "nccl"].signature[0] == three.groups["0", "nccl"].signature[0]
    (_, of_one), (_, of_two), (_, of_three) = (log.groups["0", "nccl"].signature for log in (one, two, three))
    assert of_one == of_three != of_two
    assert str(signatures[of_one]) == "all_reduce float32[3]"


@pytest.mark.parametrize(
    ("groups", "ranks"),
    [
        ({"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}, (0, 1, 2, 3)),
        ({"": {"name": "", "desc": "", "ranks": "[0, 1]"}}, (0, 1)),  # gloo, before any other group was made
        ({"": {"name": "", "desc": "", "ranks": "[]"}}, ()),
        ({"0": {"name": "0", "desc": "default_pg", "ranks": "[0-2,7]"}}, (0, 1, 2, 7)),  # as a capture of ours folds it
        ({"0": {"ranks": "[0-99999999999]"}}, ()),
        ({"0": {"ranks": "[5-1]"}}, ()),
        ({"0": {"ranks": "__import__('os').system('true')"}}, ()),
        ({"0": {"ranks": 7}, "1": None, 3: {}}, ()),
        ("nonsense", ()),
    ],
)
def test_the_ranks_of_a_group(groups, ranks):
    assert read_recorder(dump(entry(1), groups=groups), Signatures()).groups["0", "nccl"].ranks == ranks


def test_sends_and_receives():
    sent = entry(1, "nccl:send 0->3", is_p2p=True, retired=True)
    received = entry(2, "nccl:recv 0<-1", is_p2p=True)
    log = read_recorder(dump(sent, received), Signatures())
    assert [(t.sends, t.peer, t.done) for t in log.transfers] == [(True, 3, True), (False, 1, False)]


@pytest.mark.parametrize(
    "bad",
    [7, None, {}, {"process_group": ("0",)}, entry(1.5), entry(-1), entry(2**63), entry(1, time_created_ns="now"),
     entry(1, time_created_ns=2**70), entry(1, input_sizes=7), entry(1, input_sizes=[[[]]]), entry(1, group=([], "")),
     entry(1, profiling_name=None), entry(1, timeout_ms="never")],
)  # fmt: skip
def test_a_bad_entry_is_left_out_and_the_rest_is_kept(bad):
    log = read_recorder(dump(entry(1), bad, entry(2)), Signatures())
    assert list(log.groups["0", "nccl"].sequence) == [1, 2]


def test_nothing_recorded_is_a_recorder_too_and_something_else_is_none():
    assert read_recorder({"version": "2.10", "pg_config": {}}, Signatures()).groups == {}
    for foreign in (None, 7, [], {}, {"entries": []}, {"version": 1, "pg_config": {}, "entries": "x"}):
        assert read_recorder(foreign, Signatures()) is None


def test_it_comes_back_whole_from_another_process():
    theirs, ours = Signatures(), Signatures()
    ours.number(("gloo:barrier", (), ()))  # numbers differ between processes
    unpacker, sent = Unpacker(ours), 0
    for operations in (("nccl:all_reduce", "nccl:broadcast"), ("nccl:broadcast", "nccl:reduce")):
        made = dump(
            *(entry(n, o) for n, o in enumerate(operations)),
            entry(7, group=("1", "tp")),
            entry(9, group=("1", "tp")),
            entry(1, "nccl:send 0->1", is_p2p=True),
            groups={"1": {"ranks": "[0, 1]"}},
        )
        log = read_recorder(pickle.loads(pickle.dumps(made)), theirs)
        head, _, body = pack(log, theirs, sent).partition(b"\n")
        sent = len(theirs.known)
        assert json.loads(head)["bytes"] == len(body)
        back = unpacker.unpack(json.loads(head), body)
        assert [str(ours[n]).split()[0] for n in back.groups["0", "nccl"].signature] == [o[5:] for o in operations]
        assert (back.transfers, back.timeout_s) == (log.transfers, log.timeout_s)
        for name, group in back.groups.items():
            assert (group.ranks, group.created, group.done, group.comm, group.started) == (
                log.groups[name].ranks, log.groups[name].created, log.groups[name].done, "nccl", None)  # fmt: skip
            assert list(group.sequence) == list(log.groups[name].sequence)


def test_ranks_that_did_the_same_share_their_history():
    signatures = Signatures()
    logs = [read_recorder(dump(*(entry(n) for n in range(50))), signatures) for _ in range(2)]
    assert logs[0].groups["0", "nccl"].signature is logs[1].groups["0", "nccl"].signature


def test_one_group_of_two_backends_has_two_logs():
    """`cpu:gloo,cuda:nccl`: both count their own operations, in the same group."""
    log = read_recorder(
        dump(entry(1), entry(1, "gloo:barrier"), entry(2), groups={"0": {"ranks": "[0, 1]"}}), Signatures()
    )
    found = {comm: (list(one.sequence), one.ranks, one.on_device) for (_, comm), one in log.groups.items()}
    assert found == {"nccl": ([1, 2], (0, 1), True), "gloo": ([1], (0, 1), False)}


def test_whether_the_device_has_begun_the_oldest_open_operation():
    def started(*states):
        entries = [entry(n, state=state) for n, state in enumerate(states)]
        return read_recorder(dump(*entries), Signatures()).groups["0", "nccl"].started

    assert started("completed", "scheduled") is None  # start times are not recorded
    assert started("completed", "started", "scheduled") is True
    last = entry(2, time_discovered_started_ns=5, state="completed"), entry(3)
    assert read_recorder(dump(*last), Signatures()).groups["0", "nccl"].started is False


def test_the_users_lines_of_the_oldest_open_operation():
    frames = [
        {"name": "all_reduce", "filename": "/site-packages/torch/distributed/distributed_c10d.py", "line": 3245},
        {"name": "step", "filename": "/home/me/train.py", "line": 16},
        {"name": "<module>", "filename": "/home/me/train.py", "line": 40},
        {"name": 3},
        "torch",
    ]
    signatures = Signatures()
    log = read_recorder(dump(entry(1, retired=True, frames=[]), entry(2, frames=frames), entry(3)), signatures)
    lines = log.groups["0", "nccl"].lines
    assert [(f.function, f.line) for f in lines] == [("step", 16), ("<module>", 40)]
    head, _, body = pack(log, signatures, 0).partition(b"\n")
    assert Unpacker(Signatures()).unpack(json.loads(head), body).groups["0", "nccl"].lines == lines


def test_a_batch_of_transfers_is_done_when_its_last_entry_is():
    """Its sends and receives have no events of their own: torch never says that they are completed."""

    def batch(number, **closing):
        parts = [entry(4, f"nccl:{name}", is_p2p=True, p2p_seq_id=number) for name in ("send 0->1", "recv 0<-2")]
        return [*parts, entry(4, "nccl:coalesced", p2p_seq_id=number, sizes=(), **closing)]

    log = read_recorder(dump(entry(4, retired=True), *batch(1, state="completed"), *batch(2)), Signatures())
    assert [(t.peer, t.done) for t in log.transfers] == [(1, True), (2, True), (1, False), (2, False)]
    assert (list(log.groups["0", "nccl"].sequence), log.groups["0", "nccl"].first_open) == ([4], None)


def test_a_coalesced_collective_is_done_when_its_last_entry_is():
    for closes in ("nccl:coalesced", "nccl:ALLGATHER_coalesced"):
        parts = entry(4, "nccl:reduce"), entry(4, "nccl:reduce"), entry(4, closes, state="completed", sizes=())
        assert read_recorder(dump(*parts), Signatures()).groups["0", "nccl"].first_open is None


def test_durations_and_what_is_lost_come_back_from_a_process():
    signatures = Signatures()
    entries = [entry(n, state="completed", record_id=n + 4, duration_ms=ms) for n, ms in ((1, 2.5), (2, "x"), (3, 4.0))]
    log = read_recorder(dump(*entries), signatures)
    head, _, body = pack(log, signatures, 0).partition(b"\n")
    back = Unpacker(Signatures()).unpack(json.loads(head), body)
    assert (log.overrun, back.overrun, list(back.groups["0", "nccl"].duration)) == (True, True, [2.5, 0.0, 4.0])


def test_a_backend_that_records_no_starts_gives_none():
    """nccl2 writes the time of completion as that of the start, too, and an open operation has neither."""
    at = 10**18
    done = entry(1, "nccl2:all_reduce", state="completed", time_discovered_started_ns=at,
                 time_discovered_completed_ns=at)  # fmt: skip
    log = read_recorder(dump(done, entry(2, "nccl2:all_reduce", time_discovered_started_ns=None)), Signatures())
    assert log.groups["0", "nccl2"].started is None
    begun = done | {"time_discovered_completed_ns": at + 1}
    log = read_recorder(dump(begun, entry(2, "nccl2:all_reduce", time_discovered_started_ns=None)), Signatures())
    assert log.groups["0", "nccl2"].started is False


def test_the_recorders_of_one_process_are_one():
    signatures = Signatures()
    nccl = read_recorder(dump(entry(1, "nccl2:all_reduce"), entry(2, "nccl2:send 0->1", is_p2p=True)), signatures)
    gloo = read_recorder(dump(entry(1, "gloo:barrier", timeout_ms=5000), "no entry", groups={}), signatures)
    joined = RecorderLog.joined([nccl, gloo])
    assert joined.groups == {**nccl.groups, **gloo.groups} and joined.transfers == nccl.transfers
    assert (joined.entries, joined.timeout_s, list(joined.unused.values())) == (4, 5.0, [1])
    assert RecorderLog.joined([nccl]) is nccl and RecorderLog.joined([]) is None


def test_gathered_parts_of_different_sizes_are_compared_as_a_list():
    """Each rank's own part differs by right; nccl2 records such a gather as one operation."""

    def number(own, parts):
        outputs = {"output_sizes": [[size] for size in parts], "output_dtypes": ["Float"] * len(parts)}
        log = read_recorder(dump(entry(1, "nccl2:all_gather", sizes=((own,),), **outputs)), signatures)
        return log.groups["0", "nccl2"].signature[0]

    signatures = Signatures()
    assert number(4, (4, 5)) == number(5, (4, 5)) != number(4, (4, 6))
    assert number(4, (4, 4)) != number(5, (5, 5))
