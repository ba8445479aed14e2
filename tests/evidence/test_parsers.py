"""Tracebacks, crashes, kernel messages and JSON lines: what they hold, and that nothing makes them raise."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdbg.evidence import jsonl
from distdbg.evidence.logs.kernel import memory_kills
from distdbg.evidence.logs.tail import Tail
from distdbg.evidence.records import RankTexts, node_record, rank_record, ranks_seen
from distdbg.evidence.stacks.crash import fatal_error, terminate
from distdbg.evidence.stacks.tracebacks import last_chain, shortened
from tests.made_run import traceback_text


def test_last_traceback_of_many():
    text = "noise\n" + traceback_text("ValueError", "first") + "retrying\n" + traceback_text("KeyError", "'second'")
    (found,) = last_chain(text)
    assert (found.type, found.message) == ("KeyError", "'second'")
    assert str(found.where) == "train.py:88 in step"
    assert found.where.source == "loss = net(x)"
    assert text.split("\n")[found.line].startswith("Traceback")


def test_torchs_rank_prefix():
    text = "".join(f"[rank3]: {line}\n" for line in traceback_text("RuntimeError", "boom\n second line").splitlines())
    (found,) = last_chain(text + "later output that is no message\n")
    assert (found.type, found.message) == ("RuntimeError", "boom\n second line")


@pytest.mark.parametrize(
    ("between", "link"),
    [
        ("The above exception was the direct cause of the following exception:", "cause"),
        ("During handling of the above exception, another exception occurred:", "context"),
    ],
)
def test_chain(between, link):
    text = traceback_text("KeyError", "'a'") + f"\n{between}\n\n" + traceback_text("RuntimeError", "b")
    assert [(e.type, e.link) for e in last_chain(text)] == [("KeyError", ""), ("RuntimeError", link)]


def test_two_tracebacks_that_are_no_chain():
    text = traceback_text("KeyError", "'a'") + "\n" + traceback_text("RuntimeError", "b")
    assert [e.type for e in last_chain(text)] == ["RuntimeError"]


def test_message_of_a_loader_worker_keeps_its_own_traceback():
    message = "Caught KeyError in DataLoader worker process 0.\nOriginal " + traceback_text("KeyError", "'boom'")
    (found,) = last_chain(traceback_text("KeyError", message))
    assert found.message.startswith("Caught KeyError in DataLoader worker") and "'boom'" in found.message


def test_what_others_print_afterwards_is_no_message():
    after = "[rank0]:[W1121 ProcessGroup.cpp:1] warning\nterminate called without an active exception\n"
    (found,) = last_chain(traceback_text("ValueError", "boom") + after)
    assert found.message == "boom"


def test_a_long_traceback_keeps_head_and_end():
    text = shortened("\n".join(["Traceback", *(f"  line {n}" for n in range(500)), "ValueError: end"]), 20)
    assert text.startswith("Traceback") and text.endswith("ValueError: end") and len(text.split("\n")) == 20


def test_frames_of_libraries_are_one_line_of_a_shortened_traceback():
    def frame(file, line):
        return f'  File "{file}", line {line}, in f', "    call()", "    ^^^^"

    torch, other = "/venv/lib/python3.11/site-packages/torch/nn/module.py", "/venv/lib/python3.11/site-packages/x/y.py"
    rows = ["Traceback (most recent call last):", *frame("train.py", 1), *frame(torch, 2), *frame(torch, 3),
            *frame("model.py", 4), *frame(torch, 5), *frame("model.py", 6), *frame(torch, 7), *frame(other, 8),
            *frame(torch, 9), "ValueError: end"]  # fmt: skip
    assert shortened("\n".join(rows)).split("\n") == [
        *rows[:4], "  … 2 frames of torch …", *frame("model.py", 4), *frame(torch, 5), *frame("model.py", 6),
        "  … 2 frames of libraries …", *frame(torch, 9), "ValueError: end",
    ]  # fmt: skip
    alone = [rows[0], *frame(torch, 1), *frame(torch, 2), *frame(torch, 3), "ValueError: end"]
    assert shortened("\n".join(alone)).split("\n") == [rows[0], "  … 2 frames of torch …", *frame(torch, 3), alone[-1]]


def test_faulthandler_names_the_crashing_thread():
    text = (
        'Fatal Python error: Aborted\n\nThread 0x01 (most recent call first):\n  File "/a.py", line 1 in other\n\n'
        'Current thread 0x02 (most recent call first):\n  File "/home/me/train.py", line 7 in step\n\nExtension'
    )
    crash = fatal_error(text)
    assert crash is not None and crash.title == "Aborted" and str(crash.where) == "train.py:7 in step"


def test_a_native_threads_crash_shows_the_users_own_thread():
    text = (
        "Fatal Python error: Aborted\n\nThread 0x01 (most recent call first):\n"
        '  File "/venv/lib/python3.11/site-packages/distdbg/worker/link.py", line 56 in wait\n\n'
        'Thread 0x02 (most recent call first):\n  File "/venv/lib/python3.11/site-packages/torch/x.py", line 3 in f\n'
        '  File "/home/me/train.py", line 4 in <module>\n'
        '  File "/venv/lib/python3.11/site-packages/distdbg/worker/boot.py", line 16 in <module>\n\nExtension\n'
    )
    crash = fatal_error(text)
    assert crash is not None and str(crash.where) == "train.py:4 in <module>"
    assert "distdbg" not in crash.text and "torch/x.py" in crash.text


def test_terminate():
    said = "x\nterminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: y\n"
    assert terminate(said) == ("c10::Error", "CUDA error: y", 1)
    assert terminate("terminate called without an active exception\n") == ("", "without an active exception", 0)
    assert terminate("nothing") is None


def test_kernel_messages():
    lines = [
        "Out of memory: Killed process 12 (python3) total-vm:1kB, anon-rss:2048kB, file-rss:0kB",
        "Memory cgroup out of memory: Killed process 13 (pt_data worker) total-vm:1kB",
        "oom_reaper: reaped process 12",
    ]
    kills = memory_kills([(line, None) for line in lines])
    assert [(k.pid, k.cgroup, k.rss_bytes) for k in kills] == [(12, False, 2 << 20), (13, True, None)]


def test_kernel_messages_before_linux_5_1():
    """Who was chosen and who is killed are two messages, and two processes where a child was sacrificed."""
    lines = [
        "Killed process 7 (python3) total-vm:1kB: whose reason is overwritten",
        "Memory cgroup out of memory: Kill process 12 (python3) score 900 or sacrifice child",
        "Killed process 13 (pt_data_worker), UID 1000, total-vm:1kB, anon-rss:2048kB, file-rss:0kB",
        "Out of memory: Kill process 14 (python3) score 900 or sacrifice child",
        "Killed process 14 (python3) total-vm:1kB, anon-rss:4096kB, file-rss:0kB",
    ]
    kills = memory_kills([(line, 5.0) for line in lines])
    assert [(k.pid, k.cgroup, k.rss_bytes, k.t) for k in kills] == [(13, True, 2 << 20, 5.0), (14, False, 4 << 20, 5.0)]


def test_json_lines_name_the_bad_ones():
    found, bad = jsonl.objects('{"a": 1}\n\nnot json\n[1]\n{"b": NaN}\n{"cut": ')
    assert [line for line, _ in found] == [1, 5]
    assert bad == [3, 4, 6]


# -- hostile input ------------------------------------------------------------------------------------------------

TRACEBACK_LINES = st.sampled_from(
    ["Traceback (most recent call last):", '  File "x", line 99999999999999999999, in f', "    code", "E: m", "E",
     "During handling of the above exception, another exception occurred:", "[rank0]: E: x", "",
     "Fatal Python error: x", "Current thread 0x1 (most recent call first):", '  File "x", line 1 in f',
     "terminate called after throwing an instance of 'x'", "  what():  y", "SyntaxError: z"]
)  # fmt: skip
TEXTS = st.one_of(st.text(), st.lists(st.one_of(TRACEBACK_LINES, st.text(max_size=20)), max_size=30).map("\n".join))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = ("rank local_rank node_rank host pid started ended exit_code unknown_because asked_to_stop step phase rss op "
         "how t type message traceback thread where uncaught threads event ranks messages oom_kill limit when because "
         "exit_code stream bytes reason").split()  # fmt: skip
WORDS = st.sampled_from(
    ["exception", "exceptions", "script-end", "attempt-started", "rank-started", "rank-exited", "cgroup", "kernel",
     "torchrun-exited", "before", "after", "log-lost", "MainThread", "0", "-1", "99999999999999999999"]
)  # fmt: skip
RECORDS = st.dictionaries(st.sampled_from(NAMES), JSON | WORDS | st.lists(st.dictionaries(WORDS, JSON, max_size=2)))
EVENTS = st.lists(st.tuples(st.integers(1, 9), RECORDS), max_size=6)


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_no_text_makes_a_parser_raise(text):
    for error in last_chain(text):
        assert 0 <= error.line <= text.count("\n")
        assert error.where is None or str(error.where)
    fatal_error(text)
    terminate(text)
    memory_kills([(text, None)])
    jsonl.objects(text)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(RECORDS, EVENTS, RECORDS | st.none(), EVENTS)
def test_no_json_makes_a_record_raise(exit_record, facts, error, events):
    node = node_record(0, "h", events=events, events_path="e", torchrun=Tail(), torchrun_path="t")
    seen = ranks_seen(events)
    assert all(isinstance(rank, int) and rank >= 0 for rank in seen)
    texts = RankTexts("attempts/1/ranks/00000", exit_record, facts, error)
    record = rank_record(0, node, seen.get(0, {}), texts)
    assert record.exit_code is None or isinstance(record.exit_code, int)
    json.dumps(record.step)
