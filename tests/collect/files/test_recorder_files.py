"""Recorder dumps that somebody sends: none of them can execute anything, and each says why it gave nothing."""

import errno
import json
import os
import pickle
import struct
import subprocess

import pytest

from distdbg.collect.files import child_limits, recorder_files
from distdbg.collect.files.recorder_files import RecorderReader, RecorderUnreadable
from distdbg.collect.files.snapshot_files import SnapshotUnreadable, read_snapshot_file
from distdbg.evidence.recorder.log import Signatures
from tests.evidence.recorder.test_log import dump, entry

GOOD = dump(entry(1, retired=True), entry(2), groups={"0": {"ranks": "[0, 1]"}})


class Calls:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def bomb():
    """2 ** 60 pairs in sixty small objects."""
    value = ()
    for _ in range(60):
        value = (value, value)
    return pickle.dumps(dump({**entry(1), "input_sizes": [(value,)]}), 2)


def deep_tuple():
    """A size whose hash descends three million levels: it takes the reader's stack."""
    sizes = b"]" + b")" + b"\x85" * 3_000_000 + b"a"
    keys = {k: v for k, v in entry(1).items() if k != "input_sizes"}
    body = pickle.dumps(keys, 2)[2:-1]
    start = b"\x80\x02}(X\x07\x00\x00\x00versionK\x01X\x09\x00\x00\x00pg_config}X\x07\x00\x00\x00entries]"
    return start + body + b"X\x0b\x00\x00\x00input_sizes](" + sizes + b"es" + b"au."


BAD = {
    "empty": (b"", "cut short"),
    "cut": (pickle.dumps(GOOD, 2)[:-30], "cut short"),
    "no-json": (b'{"entries": [,]}' + b" " * 9, r"it is not JSON \(from byte 13 on\)"),
    "cut-json": (json.dumps(GOOD).encode()[:-9], "cut short"),
    "noise": (b"\x80\x02" + bytes(range(200, 256)), "pickle"),
    "foreign": (pickle.dumps({"model": [1, 2, 3]}, 2), "no flight recorder's dump"),
    "global": (b"\x80\x02cos\nsystem\n(X\x04\x00\x00\x00truetR.", "import 'os'.'system'"),
    "stack-global": (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "import 'os'.'system'"),
    "extension": (b"\x80\x02\x82\x01.", "pickle"),
    "persistent": (b"\x80\x02K\x01Q.", "outside of itself"),
    "memo": (b"\x80\x04K\x01r\xff\xff\xff\x7f.", "GiB of memory|free here"),
    "bytearray": (b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"abc.", "GiB of memory|free here"),
    "nested-json": (b"[" * 1_000_000, "nested deeper"),
    "number": (b'{"version": 1, "pg_config": ' + b"9" * 100_000 + b"}", "thousands of digits"),
    "nested": (b"\x80\x02" + b"]" * 300_000 + b"a" * 299_999 + b".", "no flight recorder's dump"),
}


@pytest.fixture
def reader():
    with RecorderReader(Signatures()) as reader:
        yield reader


def test_good_ones_in_both_forms(reader, tmp_path):
    (tmp_path / "a").write_bytes(pickle.dumps(GOOD, 2))
    (tmp_path / "b").write_text(json.dumps(GOOD))
    logs = [reader.read(tmp_path / name) for name in "ab"]
    assert [
        (log.groups["0", "nccl"].last, log.groups["0", "nccl"].first_open, log.groups["0", "nccl"].ranks)
        for log in logs
    ] == [(2, 1, (0, 1))] * 2


def test_bad_ones_are_named_and_the_next_is_read(reader, tmp_path):
    (tmp_path / "good").write_bytes(pickle.dumps(GOOD, 2))
    for name, (data, why) in BAD.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(RecorderUnreadable, match=why):
            reader.read(tmp_path / name)
        assert reader.read(tmp_path / "good").groups, f"after {name}"


def test_nothing_is_executed(reader, tmp_path):
    for protocol in range(6):
        (tmp_path / "evil").write_bytes(pickle.dumps({**GOOD, "comm_lib_version": Calls(tmp_path / "done")}, protocol))
        with pytest.raises(RecorderUnreadable):
            reader.read(tmp_path / "evil")
    assert not (tmp_path / "done").exists()


def test_a_file_that_ends_its_reader_costs_that_file(reader, tmp_path):
    (tmp_path / "good").write_bytes(pickle.dumps(GOOD, 2))
    (tmp_path / "deep").write_bytes(deep_tuple())
    with pytest.raises(RecorderUnreadable, match="meant to harm"):
        reader.read(tmp_path / "deep")
    assert reader.read(tmp_path / "good").groups


@pytest.mark.slow
def test_a_file_that_takes_for_ever_is_given_up(tmp_path, monkeypatch):
    (tmp_path / "laughs").write_bytes(bomb())
    monkeypatch.setattr(recorder_files, "MOST_WALL_S", 2.0)
    monkeypatch.setattr(child_limits, "MOST_LOST_S", 1.0)
    with RecorderReader(Signatures()) as reader:
        with pytest.raises(RecorderUnreadable, match="it is broken, or meant to harm"):
            reader.read(tmp_path / "laughs")
        with pytest.raises(RecorderUnreadable, match="it was not read: 1 unreadable file before"):
            reader.read(tmp_path / "laughs")


def test_what_is_no_file(reader, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for name, why in (("fifo", "not a regular file"), ("gone", "missing"), (".", "not a regular file|directory")):
        with pytest.raises(RecorderUnreadable, match=why):
            reader.read(tmp_path / name)


def test_no_further_process_is_a_reason(reader, tmp_path, monkeypatch):
    (tmp_path / "good").write_bytes(pickle.dumps(GOOD, 2))
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", refuse_process)
        with pytest.raises(RecorderUnreadable, match="no process can be started to read it: Resource temporarily"):
            reader.read(tmp_path / "good")
        with pytest.raises(SnapshotUnreadable, match="no process can be started to read it: Resource temporarily"):
            read_snapshot_file(tmp_path / "good", "good")
    assert reader.read(tmp_path / "good").groups


def refuse_process(*_arguments, **_options):
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
