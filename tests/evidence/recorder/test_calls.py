"""What a rank writes down of its calls, read back as another process would."""

import sys
from types import SimpleNamespace

import pytest
import torch

from distdbg.evidence.recorder.calls import NUMBERS, read_calls
from distdbg.worker.calls import CALLS, CALLS_BYTES, CallLog
from tests.launch.file_systems import tiny_file_system


def written(tmp_path):
    """(a function to call with a frame, a function that reads)."""
    subscribers = []
    log = CallLog(str(tmp_path / "00000"))
    bus = SimpleNamespace(subscribe=lambda _event, record: subscribers.append(record))
    log.subscribe(bus, SimpleNamespace(counter=lambda _count: lambda _call: None, transfer=lambda: lambda: None))
    raw, sites = tmp_path / "00000.calls", tmp_path / "00000.sites"
    return subscribers[0], lambda: read_calls(raw.read_bytes(), sites.read_text())


TORCHS = {"record": lambda: None}
exec(  # a module of its own, as torch.distributed is one
    "import sys\ndef all_reduce(tensor, group=None): record(sys._getframe())\n"
    "def all_gather(tensor_list, tensor): record(sys._getframe())\n"
    "def all_to_all_single(output, tensor): record(sys._getframe())\n"
    "def irecv(tensor, src, group=None, group_src=None): record(sys._getframe())\n"
    "def recv(tensor, src): irecv(tensor, src)\n"
    "def isend(tensor, dst, tag=0): record(sys._getframe())\n"
    "def gather(tensor, dst): record(sys._getframe())\n"
    "def gather_object(thing, dst): gather(thing, dst)\n"
    "def batch_isend_irecv(group, peer): irecv(None, None, group=group, group_src=peer)\n"
    "_pg_group_ranks = {'pair': {2: 0, 5: 1}}\n"
    "_pg_names = {'pair': '1', 'all': '0'}\n"
    "class GroupMember: WORLD, NON_GROUP_MEMBER = 'all', -100\n",
    TORCHS,
)


def test_a_call_has_its_line_its_time_and_its_peer(tmp_path):
    record, read = written(tmp_path)
    TORCHS["record"] = record
    TORCHS["all_reduce"](None)
    line = sys._getframe().f_lineno - 1
    TORCHS["recv"](None, src=3)
    first, second = read()
    assert (first.operation, first.file, first.line, first.peer) == ("all_reduce", __file__, line, None)
    assert first.function == "test_a_call_has_its_line_its_time_and_its_peer"
    assert (second.operation, second.line, second.peer) == ("irecv", line + 2, 3)
    assert 0 < first.t <= second.t


def test_a_transfer_has_its_tag(tmp_path):
    record, read = written(tmp_path)
    TORCHS["record"] = record
    TORCHS["isend"](None, dst=1, tag=7)
    TORCHS["isend"](None, dst=1)
    TORCHS["recv"](None, src=3)
    assert [(call.tag, call.size) for call in read()] == [(7, None), (0, None), (None, None)]


def test_a_call_is_kept_without_its_line_where_there_is_no_room_for_it(tmp_path):
    with tiny_file_system(tmp_path / "shm", f"{CALLS_BYTES}") as full:
        record, read = written(full)
        TORCHS["record"] = record
        TORCHS["all_reduce"](None)
        TORCHS["all_reduce"](None)
        assert [(call.line, call.operation) for call in read()] == [(0, "")] * 2
    with tiny_file_system(tmp_path / "smaller", f"{CALLS_BYTES - 4096}") as full:
        with pytest.raises(OSError, match="No space left"):
            CallLog(str(full / "00000"))
        assert not list(full.iterdir())


def test_the_rank_within_a_group_becomes_that_within_the_world(tmp_path):
    record, read = written(tmp_path)
    TORCHS["record"] = record
    TORCHS["batch_isend_irecv"]("pair", 1)
    TORCHS["batch_isend_irecv"]("pair", 7)
    TORCHS["batch_isend_irecv"](None, 3)
    assert [(c.operation, c.peer) for c in read()] == [("irecv", 5), ("irecv", None), ("irecv", 3)]


def test_the_newest_are_kept(tmp_path):
    record, read = written(tmp_path)
    TORCHS["record"] = record
    for _ in range(CALLS + 10):
        TORCHS["all_reduce"](None)
    TORCHS["recv"](None, 1)
    found = read()
    assert len(found) == CALLS
    assert found[-1].operation == "irecv"
    assert [c.t for c in found] == sorted(c.t for c in found)


def test_what_is_no_such_file_is_empty(tmp_path):
    _, read = written(tmp_path)
    assert read() == []
    assert read_calls(b"\0" * 100, "") == []
    assert read_calls((tmp_path / "00000.calls").read_bytes()[:-1], "x") == []


def test_a_transfer_is_numbered_by_its_peer_and_its_way(tmp_path):
    record, read = written(tmp_path)
    TORCHS["record"] = record
    for peer in (1, 2, 1, None):
        TORCHS["recv"](None, peer)
    TORCHS["isend"](None, 1)
    TORCHS["all_reduce"](None)
    assert [(c.peer, c.number) for c in read()] == [(1, 1), (2, 1), (1, 2), (None, 0), (1, 1), (None, 1)]


def test_numbers_begin_anew_before_they_are_too_long(tmp_path):
    record, read = written(tmp_path)
    TORCHS["record"] = record
    for _ in range(NUMBERS + 2):
        TORCHS["recv"](None, 2**31 - 2)
    newest = read()[-3:]
    assert [(c.peer, c.number) for c in newest] == [(2**31 - 2, NUMBERS), (2**31 - 2, 1), (2**31 - 2, 2)]
    assert {c.operation for c in newest} == {"irecv"}


def test_the_root_of_a_gather_is_kept(tmp_path):
    record, read = written(tmp_path)
    TORCHS["record"] = record
    TORCHS["gather_object"](None, 3)
    (call,) = read()
    assert (call.operation, call.peer, call.number) == ("gather_object", 3, 1)


def test_the_group_of_all_has_one_name_and_who_is_no_member_calls_nothing(tmp_path):
    """torch puts it in place of None in some functions before it asks, and not in others."""
    record, read = written(tmp_path)
    TORCHS["record"] = record
    for group in (None, "all", -100, "pair"):
        TORCHS["all_reduce"](torch.ones(1), group=group)
    assert [(c.group, c.number) for c in read()] == [("", 1), ("", 2), ("1", 1)]


def test_what_must_be_equally_large_on_every_rank_is_kept(tmp_path):
    record, read = written(tmp_path)
    TORCHS["record"] = record
    TORCHS["all_reduce"](torch.ones(5, 8))
    TORCHS["all_gather"]([torch.ones(3), torch.ones(4, dtype=torch.int64)], torch.ones(3))
    TORCHS["all_to_all_single"](torch.ones(3), torch.ones(5))  # parts may differ
    TORCHS["all_reduce"](torch.ones(0, dtype=torch.bfloat16), group="pair")
    TORCHS["all_gather"]([], None)
    kept = [(c.operation, c.size, c.dtype, c.group, c.number) for c in read()]
    assert kept == [
        ("all_reduce", 40, "float32", "", 1),
        ("all_gather", 7, "float32", "", 2),
        ("all_to_all_single", None, "", "", 3),
        ("all_reduce", 0, "bfloat16", "1", 1),
        ("all_gather", None, "", "", 4),
    ]
