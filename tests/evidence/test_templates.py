"""Texts that differ in numbers alone are read once, and each keeps its own numbers."""

import json
import re

import pytest

from distdbg.diagnosis.timeline.seen import parts
from distdbg.evidence.jsonl import OutOfBounds
from distdbg.evidence.recorder.log import Signatures
from distdbg.evidence.recorder.reading import RecorderTexts, read_recorder
from distdbg.evidence.stacks.threads import StackTexts, read_threads
from distdbg.evidence.templates import Templates

FRAMES = [{"name": "step", "filename": "train.py", "line": 7, "locals": [{"name": "id", "repr": '"id": 5, '}]}]
FIRST = 1_795_784_508_129_003_274


def threads(pid, os_id, **fields):
    main = {"pid": pid, "thread_id": 139_762_401_037_184, "thread_name": "MainThread", "os_thread_id": pid}
    return [{**main, "active": True, "frames": FRAMES, **fields}, {**main, "os_thread_id": os_id, "frames": FRAMES[:0]}]


def recorder(times, **fields):
    entries = [
        {"process_group": ["0", "default_pg"], "collective_seq_id": number, "profiling_name": "gloo:all_reduce",
         "state": "scheduled", "retired": number == 1, "is_p2p": False, "input_sizes": [[2]], "input_dtypes": ["Float"],
         "thread_id": str(t)[:15], "time_created_ns": t, "time_discovered_started_ns": 0, **fields}
        for number, t in enumerate(times, 1)
    ]  # fmt: skip
    sent = {**entries[-1], "is_p2p": True, "profiling_name": "nccl:send 0->1", "p2p_seq_id": 1}
    return {"version": "2.10", "pg_config": {"0": {"ranks": "[0, 1]"}}, "entries": [*entries, sent]}


def test_a_text_is_read_once():
    asked = []
    templates = Templates(re.compile(r"(t=)(\d+)"), lambda text: asked.append(text) or len(asked))
    assert [templates.read(text) for text in ("a t=1 t=2", "a t=7 t=1", "b t=7 t=1")] == [
        (1, [1, 2]), (1, [7, 1]), (2, [7, 1])]  # fmt: skip


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":"), (" , ", " : ")])
def test_stacks_are_those_of_each_rank(separators):
    reader = StackTexts()
    values = [threads(10, 11), threads(20, 21), threads(20, 22, active=False), threads(0, -4), threads(1.5, "9"),
              threads(True, None), threads(1 << 61, 1 << 63), threads(10**30, 5)]  # fmt: skip
    for value in values:
        assert reader.read(json.dumps(value, separators=separators)) == (read_threads(value), 2)


def test_equal_stacks_share_memory():
    reader = StackTexts()
    (one, _), (other, _) = (reader.read(json.dumps(threads(pid, pid + 1))) for pid in (10, 20))
    assert one[0].frames is other[0].frames
    assert (one[0].pid, other[0].pid, other[1].os_id) == (10, 20, 21)
    assert one[0].frames[0].variables == {"id": '"id": 5, '}


@pytest.mark.parametrize(("text", "count"), [("null", 0), ('{"pid": 7}', 1), ('[{"pid": 7}, 3]', 2), ("[]", 0)])
def test_a_text_that_has_no_threads(text, count):
    assert StackTexts().read(text) == ((), count)


@pytest.mark.parametrize("text", ['[{"pid": 7', '[{"pid": 07}]', "", "[" * 5000])
def test_a_text_that_is_no_json(text):
    for reader in (StackTexts(), RecorderTexts(Signatures())):
        with pytest.raises((json.JSONDecodeError, OutOfBounds)):
            reader.read(text)


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":"), (" , ", " : ")])
def test_recorders_have_the_times_of_each_rank(separators):
    signatures = Signatures()
    reader = RecorderTexts(signatures)
    dumps = [recorder([FIRST, FIRST + 5]), recorder([FIRST + 1, FIRST + 9]), recorder([3, FIRST]),
             recorder([FIRST, FIRST], time_discovered_started_ns=FIRST), recorder([10**19, FIRST]),
             recorder([-5, FIRST]), recorder([1 << 62, FIRST]), recorder([1.5, FIRST])]  # fmt: skip
    for dump in dumps:
        assert reader.read(json.dumps(dump, separators=separators)) == read_recorder(dump, signatures)


def test_recorders_that_differ_in_times_share_the_rest():
    reader = RecorderTexts(Signatures())
    one, other = (reader.read(json.dumps(recorder([t, t + 4]))) for t in (FIRST, FIRST + 1000))
    ours, theirs = one.groups["0", "gloo"], other.groups["0", "gloo"]
    assert ours.done is theirs.done
    assert (list(ours.created), list(theirs.created)) == ([FIRST, FIRST + 4], [FIRST + 1000, FIRST + 1004])
    assert (one.transfers[0].created, other.transfers[0].created) == (FIRST + 4, FIRST + 1004)


def test_what_is_no_recorders_dump():
    assert RecorderTexts(Signatures()).read('{"entries": []}') is None


def test_equal_stacks_keep_the_variables_of_each_rank():
    """Frames compare without them."""
    reader = StackTexts()
    frames = [[{**FRAMES[0], "locals": [{"name": "dst", "repr": str(peer)}]}] for peer in (1, 2)]
    read = [reader.read(json.dumps(threads(10, 11, frames=each)))[0][0] for each in frames]
    assert [thread.user_frames[0].variables for thread in read] == [{"dst": "1"}, {"dst": "2"}]
    assert [parts(thread.frames)[1][0].variables for thread in read] == [{"dst": "1"}, {"dst": "2"}]
