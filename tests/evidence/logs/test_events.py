"""Errors that a log has, and that are not the job's."""

from tests.evidence.logs.reading import read_logs

PREFIX = "[rank0]:E1128 10:52:31.908000 10570 torch/distributed/debug/_frontend.py:305] "
#: As torch 2.13 logs it at each interval for a job on gloo.
FRAMES = """Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/torch/distributed/debug/_frontend.py", line 303, in _run
    content = handler.dump()
  File "/venv/lib/python3.11/site-packages/torch/distributed/flight_recorder/components/builder.py", line 212, in build
    pg_name = _pg_guids[(original_pg_name, first_rank)]
KeyError: ('0', 0)"""
SERVER = "".join(f"{PREFIX}{line}\n" for line in ["Failed to dump fr_trace", *FRAMES.split("\n")])
SCRIPT = """[rank0]: Traceback (most recent call last):
[rank0]:   File "/job/train.py", line 9, in main
[rank0]:     start_debug_server()
[rank0]:   File "/venv/lib/python3.11/site-packages/torch/distributed/debug/__init__.py", line 96, in start_debug_server
[rank0]:     from torch.distributed.debug._debug_handlers import default_handlers
[rank0]: ModuleNotFoundError: No module named 'tabulate'
"""


def raised(text):
    return [fact.type for rank in read_logs({"job.log": text}).ranks.values() for fact in rank.exceptions]


def test_error_of_the_debug_server_is_not_the_jobs():
    assert not raised(SERVER)
    assert not raised(SERVER * 100), "of messages that are repeated so often, not all frames are kept"
    assert raised(SERVER + SCRIPT) == ["ModuleNotFoundError"], "the script itself has called it"
