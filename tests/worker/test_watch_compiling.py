"""`--watch compile` inside a rank, on records as torch's structured trace makes them: read, and put together."""

import logging

import pytest

from distdbg.worker.hooks.bus import Bus
from distdbg.worker.hooks.importing import ImportWatch
from distdbg.worker.watch.compiling import CompileWatch

BREAK = """Graph break in user code at /home/me/train.py:14
Graph Break Reason: Encountered graph break when attempting to trace CALL: a function call, e.g. f(x, y):

Failed to trace builtin operator
  Explanation: Dynamo does not know how to trace builtin operator `print`
  Hint: Avoid calling builtin `print`.
  Hint: Please report an issue to PyTorch.

  Developer debug context: builtin print False

 For more details about this graph break, please visit: https://example.org

User code traceback:
  File "/home/me/train.py", line 40, in <module>
    step(x)
  File "/home/me/train.py", line 14, in torch_dynamo_resume_in_step_at_12
    print("hello")

Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/torch/_dynamo/symbolic_convert.py", line 1076, in wrapper
"""


OWN = '/venv/lib/python3.11/site-packages/torch/nn/parallel/distributed.py", line 1646, in _pre_forward'
DDP = BREAK.replace('/home/me/train.py", line 14, in torch_dynamo_resume_in_step_at_12', OWN)


class Ears(Bus):
    def _install_later(self, point):
        pass


class Rank:
    def __init__(self):
        self.reported = []
        self.bus = Ears(ImportWatch(lambda *_: None), lambda *what: pytest.fail(str(what)))
        self.link = self

    def send(self, op, fields, *, last_words=False):
        self.reported.append(fields)
        return True

    def fact(self, kind, **fields):
        return self.send("fact", {"kind": kind, **fields})

    def of(self, guard):
        return [reported for reported in self.reported if reported.get("guard") == guard]


@pytest.fixture
def rank():
    made = Rank()
    made.watch = CompileWatch(made)
    yield made
    logging.getLogger("torch.__trace").removeHandler(made.watch)


def hear(watch, payload=None, which=(0, 0), **metadata):
    record = logging.LogRecord("torch.__trace", logging.DEBUG, "", 0, "", (), None)
    record.metadata = metadata | {"frame_id": which[0], "frame_compile_id": which[1]}
    record.payload = payload
    watch.emit(record)


def compiles(watch, which, line=12, reason=None, fail=None):
    if reason is not None:
        hear(watch, reason, which, artifact={"name": "recompile_reasons"})
    if fail is None:
        stack = [{"filename": 1, "line": 40, "name": "<module>"}, {"filename": 1, "line": line, "name": "step"}]
        hear(watch, None, which, dynamo_start={"stack": stack})
    metrics = {"dynamo_cumulative_compile_time_us": 500_000, "fail_type": fail and "Unsupported", "fail_reason": fail}
    hear(watch, None, which, compilation_metrics=metrics)


def test_where_ddp_leaves_the_graph_by_itself_nothing_is_broken(rank):
    hear(rank.watch, DDP, artifact={"name": "dynamo_graph_break_reason"})
    rank.watch.finish(failed=False)
    assert rank.of("graph-break") == []


def test_breaks_and_recompilations_are_reported_by_the_users_lines(rank):
    hear(rank.watch, str=["/home/me/train.py", 1])
    compiles(rank.watch, (0, 0))
    for _ in range(2):
        hear(rank.watch, BREAK, artifact={"name": "dynamo_graph_break_reason"})
    compiles(rank.watch, (0, 1), reason="0/0: tensor 'x' size mismatch at index 0. expected 4, actual 5")
    two = '[\n"0/1: tensor \'x\' size mismatch at index 0. expected 5, actual 6",\n"0/0: other"\n]'
    compiles(rank.watch, (0, 2), reason=two)
    near = "0/0: n == 2    # x = x * n  # me/train.py:13 in step\nUser stack trace:\n"
    near += '  File "/home/me/train.py", line 13, in step\n'
    compiles(rank.watch, (0, 3), reason=near)
    rank.watch.finish(failed=False)
    (broken,) = rank.of("graph-break")
    assert (broken["where"], broken["count"]) == (["/home/me/train.py", 14, "step"], 2)
    assert broken["reason"].startswith("Failed to trace builtin operator Explanation: Dynamo does not know")
    assert broken["hint"] == "Avoid calling builtin `print`."
    shapes, number = rank.of("recompile")
    assert (shapes["where"], shapes["count"], shapes["gave_up"]) == (["/home/me/train.py", 12, "step"], 2, False)
    assert (number["where"], number["guard_failed"]) == (["/home/me/train.py", 13, "step"], "n == 2")
    (summary,) = rank.of("compile")
    assert (summary["compiled"], summary["functions"], summary["seconds"]) == (4, 1, 2.0)


def test_torch_gives_up_at_its_limit(rank):
    hear(rank.watch, str=["/home/me/train.py", 1])
    compiles(rank.watch, (0, 0))
    compiles(rank.watch, (0, 1), reason="0/0: name == 'a'")
    compiles(rank.watch, (0, 2), reason="0/1: name == 'b'", fail="Dynamo recompile limit exceeded")
    rank.watch.finish(failed=False)
    (reported,) = rank.of("recompile")
    assert (reported["count"], reported["gave_up"], reported["guard_failed"]) == (1, True, "name == 'a'")
    assert rank.of("compile")[0]["compiled"] == 2


def test_a_trace_of_another_making_is_no_error(rank):
    for metadata in ({"str": None}, {"dynamo_start": {"stack": [{}]}}, {"artifact": {"name": "recompile_reasons"}}):
        rank.watch.emit(logging.makeLogRecord({"metadata": metadata}))
    rank.watch.emit(logging.makeLogRecord({}))
    rank.watch.finish(failed=True)
    assert rank.of("compile")[0]["compiled"] == 0
    assert rank.watch not in logging.getLogger("torch.__trace").handlers
