"""torchrun's log, as torch 2.13 prints it."""

import json

from tests.evidence.logs.reading import read_logs

LOG = """W1121 06:20:14.101 4319 torch/distributed/run.py:851] Setting OMP_NUM_THREADS
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/me/train.py", line 16, in <module>
[rank1]:     raise RuntimeError("planted")
[rank1]: RuntimeError: planted
[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/me/train.py", line 21, in <module>
[rank0]:     dist.barrier()
[rank0]: torch.distributed.DistBackendError: Connection closed by peer [127.0.0.1]:20137
W1121 06:20:18.441 4319 torch/distributed/elastic/api.py:908] Sending process 4329 closing signal SIGTERM
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-21_06:20:17
  host      : node7
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 4328)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
[2]:
  time      : 2026-11-21_06:20:18
  host      : node7
  rank      : 3 (local_rank: 3)
  exitcode  : -9 (pid: 4330)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 4330
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_06:20:18
  host      : node7
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 4327)
  error_file: <N/A>
============================================================
"""


def test_the_table_and_each_ranks_own_lines():
    ranks = read_logs({"job.log": "\n" * 10 + LOG}).ranks
    assert {rank: process.exit_code for rank, process in ranks.items()} == {0: 1, 1: 1, 3: -9}
    assert (ranks[1].host, ranks[1].pid) == ("node7", 4328)
    assert ranks[1].ended < ranks[0].ended
    assert ranks[1].stderr_first_line == 12
    assert ranks[1].stderr_tail.endswith("RuntimeError: planted")


def test_a_rank_without_an_exit_code_still_raised():
    lines = LOG.split("\n")[:9]
    (error,) = read_logs({"job.log": "\n".join(lines)}).ranks[1].exceptions
    assert (error.type, error.message, error.where[1], error.citation.line) == ("RuntimeError", "planted", 16, 2)


def test_warnings_of_nccl_are_kept_for_the_rank():
    own = "[rank1]: n7:1:2 [0] NCCL WARN Call to ibv_modify_qp failed\n[rank1]: Traceback (most recent call last):\n"
    assert "ibv_modify_qp" in read_logs({"job.log": own}).ranks[1].nccl_tail


def test_teed_lines_lose_their_mark():
    found = read_logs({"job.log": "[default2]:Traceback (most recent call last):\n[default2]:ValueError: x\n"})
    assert found.unattributed[0].stderr_tail.startswith("Traceback")


def test_a_traceback_that_nobody_claims():
    plain = 'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\nValueError: x\n'
    found = read_logs({"job.log": plain})
    assert not found.ranks and found.unattributed[0].exceptions[0].type == "ValueError"
    assert read_logs({"rank3.log": plain}).ranks[3].exceptions[0].type == "ValueError"
    one = LOG[LOG.index("Root Cause") :]
    found = read_logs({"job.log": plain + one})
    assert set(found.ranks) == {0} and found.ranks[0].exceptions and not found.unattributed


MEMBER = "n1:7:9 [0] NCCL INFO ncclCommInitRankConfig comm 0x5 rank {} nranks {} cudaDev 0 busId 0 - Init COMPLETE\n"


def test_nccls_own_file_is_of_the_rank_that_it_says_and_not_of_the_device():
    fault = "n1:7:9 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<5> with status=12 opcode=0\n"
    own = read_logs({"nccl.n1.7.log": MEMBER.format(3, 8) + MEMBER.format(3, 4) + fault}).ranks[3]
    assert (own.host, own.nccl_path, own.nccl.faults[0].line) == ("n1", "nccl.n1.7.log", 3)
    assert own.only_nccl and not own.stderr_tail


def test_nccls_own_file_whose_rank_is_not_certain_is_of_no_rank():
    for text in (MEMBER.format(3, 8) + MEMBER.format(1, 2), "n1:7:9 [3] NCCL INFO Using network IB\n"):
        assert not read_logs({"nccl.n1.7.log": text}).ranks
        assert read_logs({"nccl.rank5.log": text}).ranks[5].nccl.host == "n1"


def test_what_nccl_says_between_is_not_the_failed_ranks():
    one = LOG[LOG.index("Root Cause") :]
    assert read_logs({"job.log": "n1:7:9 [3] NCCL INFO Using network IB\n" + one}).ranks[0].nccl is None


def test_a_message_of_json_that_has_a_traceback_in_it():
    said = "step failed\n" + "\n".join(line.removeprefix("[rank1]: ") for line in LOG.split("\n")[1:5])
    after = json.dumps({"rank": 0, "message": "a\nb\nsrun: error: node7: task 1: Killed"})
    ranks = read_logs({"job.log": "\n" + json.dumps({"rank": 1, "message": said}) + "\n" + after}).ranks
    (error,) = ranks[1].exceptions
    assert (error.type, error.message, error.where[1], error.citation.line) == ("RuntimeError", "planted", 16, 2)
    assert (ranks[1].exit_code, ranks[1].exit_citation.line) == (-9, 3)
