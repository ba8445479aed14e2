"""Traces as files: packed, cut short, of other tools, hostile; what is not usable is named, and the rest is read."""

import gzip
import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distdbg.collect.files.trace_files import TraceUnreadable, read_trace_file, read_traces
from distdbg.errors import EvidenceUnreadable, NothingToAnalyse
from distdbg.evidence.trace.marks import HEADER, LINE, LINES_TRACK, TRACK
from tests.evidence.trace.cuda_trace import MAIN, CudaTrace


def small(steps=4):
    built = CudaTrace()
    for n in range(steps):
        at = 1000.0 * n
        built.step(n, at, 1000)
        built.host("cpu_op", "aten::mm", at + 100, 300)
        built.host("cpu_op", "autograd::engine::evaluate_function: MmBackward0", at + 500, 300)
        built.host("user_annotation", "Optimizer.step#SGD.step", at + 850, 100)
    return built


def test_packed_or_plain_it_is_the_same(tmp_path):
    (tmp_path / "rank7.json").write_text(small().text)
    with gzip.open(tmp_path / "rank7.json.gz", "wt") as file:
        file.write(small().text)
    plain, packed = (read_trace_file(tmp_path / name, "x") for name in ("rank7.json", "rank7.json.gz"))
    assert plain == packed and plain.unknown[0][0] == "files and lines of x"
    assert {k: round(v) for k, v in plain.parts.items()} == {
        "data wait": 0, "preparing": 0, "forward": 400, "backward": 300, "communication": 0, "optimizer": 100,
        "other": 200,
    }  # fmt: skip


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_packed_trace_that_is_cut_short_is_used_as_far_as_it_goes(tmp_path, share):
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(small(400).text.encode()))
    os.truncate(path, int(path.stat().st_size * share))
    profile = read_trace_file(path, "t.json.gz")
    assert 100 < profile.steps < 400 and "it is cut short after" in profile.unknown[0][1]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("Step 3: loss 0.3\n", "it is no chrome trace: it is not JSON"),
        ('{"a": 1}', "it has no traceEvents"),
        ('{"traceEvents": []}', "no step was recorded"),
        ('{"traceEvents": [{"ph": "X"', "cut short before its first event"),
        (json.dumps([{"ph": "X", "cat": "FEE", "name": "f", "ts": 1, "dur": 2}] * 3), "another tool's trace"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path, text, why):
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(TraceUnreadable, match=why):
        read_trace_file(path, "t.json")


def test_a_merged_trace_is_not_taken_for_one_ranks(tmp_path):
    built = small()
    events = [dict(event, pid=pid) for pid in (1, 2) for event in built.events]
    (tmp_path / "t.json").write_text(json.dumps(events))
    with pytest.raises(TraceUnreadable, match="the merged trace of 2 processes"):
        read_trace_file(tmp_path / "t.json", "t.json")


def test_of_a_folder_what_is_no_trace_is_passed_over(tmp_path):
    (tmp_path / "exit.json").write_text('{"exit_code": 0}')
    with pytest.raises(NothingToAnalyse):
        read_traces([tmp_path])
    for rank in (10, 2):
        (tmp_path / f"rank{rank}.json").write_text(small().text.replace('"rank": 3', f'"rank": {rank}'))
    (tmp_path / "rank5.json").write_text('{"traceEvents": []}')
    profiles, unread = read_traces([tmp_path])
    assert [p.rank for p in profiles] == [2, 10] and [why for _, why in unread] == [
        "it has no events: no step was recorded"
    ]
    with pytest.raises(EvidenceUnreadable, match="no step was recorded"):
        read_traces([tmp_path / "rank5.json"])


def test_marks_and_lines_of_our_own_capture_are_read(tmp_path):
    """On tracks of their own: steps and phases, and the script's lines around its calls."""
    built = CudaTrace()
    built.frame("train.py", 9, "main", 0, 9000)
    for n in range(4):
        at = 2000.0 * n
        built.host("user_annotation", f"distdbg:step {n + 21}", at, 2000, tid=TRACK, queued_us=300.0)
        built.host("user_annotation", "distdbg:loader", at, 500, tid=TRACK)
        built.host("user_annotation", "distdbg:forward", at + 500, 500, tid=TRACK)
        built.host("user_annotation", "distdbg:backward", at + 1000, 600, tid=TRACK)
        built.host("user_annotation", "distdbg:optimizer", at + 1600, 300, tid=TRACK)
        built.host("cpu_op", "aten::mm", at + 600, 100)
        built.host("user_annotation", LINE, at + 700, 250, tid=LINES_TRACK, file="/home/me/train.py", line=33)
        built.host("python_function", "<built-in method item of Tensor object at 0x1>", at + 700, 250)
        built.host("cpu_op", "aten::item", at + 701, 248)
    head = {HEADER: {"rank": 5, "host": "node1", "missing": "the job ended in step 25"}, "traceEvents": built.events}
    (tmp_path / "steps-21-24.json").write_text(json.dumps(head))
    profile = read_trace_file(tmp_path / "steps-21-24.json", "p")
    assert (profile.rank, profile.host, profile.steps, profile.first, profile.last) == (5, "node1", 4, "21", "24")
    assert profile.queued_us == 300
    assert {k: round(v) for k, v in profile.parts.items()} == {
        "data wait": 500, "preparing": 0, "forward": 500, "backward": 600, "communication": 0, "optimizer": 300,
        "other": 100,
    }  # fmt: skip
    (wait,) = profile.costly
    assert wait.kind == "wait" and wait.lines == (33,) and wait.gain_us == pytest.approx(250)
    assert ("the steps that p was to have", "the job ended in step 25") in profile.unknown


def test_a_source_that_was_changed_since_is_not_believed(tmp_path):
    built = CudaTrace()
    built.frame("train.py", 1, "main", 0, 4000)
    for n in range(4):
        built.step(n, 1000.0 * n, 1000)
        built.host("python_function", "<built-in method item of Tensor object at 0x1>", 1000.0 * n + 10, 300)
        built.host("cpu_op", "aten::item", 1000.0 * n + 11, 290)
    source, trace = tmp_path / "train.py", tmp_path / "t.json"
    source.write_text("def main():\n    return loss.item()\n")
    trace.write_text(built.text)
    os.utime(source, (1, 1))
    assert read_trace_file(trace, "t").costly[0].lines == (2,)
    os.utime(source, (2e9 * 2, 2e9 * 2))
    assert read_trace_file(trace, "t").costly[0].lines == ()


_values = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5000), st.floats(), st.sampled_from(["X", "kernel", "cpu_op", "", "ü"]),
    st.lists(st.integers(), max_size=2), st.dictionaries(st.sampled_from(["device", "correlation"]), st.none()),
)  # fmt: skip
_NAMES = ["ProfilerStep#1", "distdbg:step 3", "aten::item", "aten::mm", "Optimizer.step#A", LINE, "x.py(3): f",
          "cudaStreamSynchronize", "autograd::engine::evaluate_function: A", "distdbg:loader"]  # fmt: skip
_CATEGORIES = ["cpu_op", "user_annotation", "python_function", "kernel", "cuda_runtime", "gpu_memcpy"]
_events = st.fixed_dictionaries(
    {},
    optional={
        "ph": st.sampled_from(["X", "X", "X", "M"]),
        "cat": st.sampled_from(_CATEGORIES),
        "name": st.one_of(st.sampled_from(_NAMES), _values), "ts": st.one_of(st.integers(0, 1000), _values),
        "dur": st.one_of(st.integers(0, 1000), _values), "pid": _values, "tid": st.sampled_from([MAIN, "s"]),
        "args": st.one_of(_values, st.dictionaries(st.sampled_from(["Input Dims", "file", "line", "device"]), _values)),
    },
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_events, max_size=14))
def test_no_trace_breaks_the_reader(tmp_path, events):
    """Whatever stands in it: an answer whose parts sum to its step, or why there is none."""
    (tmp_path / "t.json").write_text(json.dumps(events))
    try:
        profile = read_trace_file(tmp_path / "t.json", "t")
    except TraceUnreadable:
        return
    assert sum(profile.parts.values()) == pytest.approx(profile.step_us, rel=1e-6, abs=1e-6)
