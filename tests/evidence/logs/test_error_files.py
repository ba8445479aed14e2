"""Error files of torchelastic's `@record`, as torch/distributed/elastic/multiprocessing/errors writes them."""

import json

import pytest

from tests.evidence.logs.reading import read_logs

STACK = 'Traceback (most recent call last):\n  File "main.py", line 7, in main\n    a // 0\nZeroDivisionError: x\n'
SAID = {"message": {"message": "ZeroDivisionError: x", "extraInfo": {"py_callstack": STACK, "timestamp": "1714557600"}}}
IN_A_LOG = "ERROR:torch.distributed.elastic.multiprocessing.errors.error_handler:" + json.dumps(SAID, indent=2)


@pytest.mark.parametrize("text", [json.dumps(SAID), json.dumps(SAID, indent=2), IN_A_LOG + "\nafter\n"])
def test_the_traceback_in_it(text):
    (error,) = read_logs({"rank5/error.json": text}).ranks[5].exceptions
    assert (error.type, error.message, error.where) == ("ZeroDivisionError", "x", ("main.py", 7, "main"))
    assert error.citation.line == next(n for n, line in enumerate(text.split("\n"), 1) if "Traceback" in line)


def test_the_time_in_it():
    found = read_logs({"error.json": json.dumps(SAID)})
    assert found.read.first == 1714557600


def test_without_a_traceback_the_message_counts():
    bare = {"message": {"message": "RuntimeError: y", "extraInfo": {"timestamp": "1714557600"}}}
    (error,) = read_logs({"none_x/attempt_0/3/error.json": json.dumps(bare)}).unattributed[0].exceptions
    assert (error.type, error.message) == ("RuntimeError", "y")
