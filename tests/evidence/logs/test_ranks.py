"""torchrun's log, as torch 2.13 prints it."""

from distdbg.evidence.logs.ranks import is_log, read_log
from distdbg.evidence.logs.tail import Tail

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
    found = read_log(Tail(LOG, 11), "job.log", None)
    assert {rank: f["exit_code"] for rank, f in found.ranks.items()} == {0: 1, 1: 1, 3: -9}
    assert (found.ranks[1]["host"], found.ranks[1]["pid"]) == ("node7", 4328)
    assert found.ranks[1]["ended"] < found.ranks[0]["ended"]
    assert found.ranks[1]["stderr_first_line"] == 12
    assert found.ranks[1]["stderr_tail"].endswith("[rank1]: RuntimeError: planted")


def test_a_rank_without_an_exit_code_still_raised():
    lines = LOG.split("\n")[:9]
    found = read_log(Tail("\n".join(lines)), "job.log", None)
    (error,) = found.ranks[1]["exceptions"]
    assert (error.type, error.message, error.where[1], error.citation.line) == ("RuntimeError", "planted", 16, 2)


def test_warnings_of_nccl_are_kept_for_the_rank():
    own = "[rank1]: n7:1:2 [0] NCCL WARN Call to ibv_modify_qp failed\n[rank1]: Traceback (most recent call last):\n"
    assert "ibv_modify_qp" in read_log(Tail(own), "job.log", None).ranks[1]["nccl_tail"]


def test_teed_lines_lose_their_mark():
    found = read_log(Tail("[default2]:Traceback (most recent call last):\n[default2]:ValueError: x\n"), "job.log", None)
    assert found.ranks[2]["stderr_tail"].startswith("Traceback")


def test_a_traceback_that_nobody_claims():
    plain = 'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\nValueError: x\n'
    assert read_log(Tail(plain), "job.log", None).unknown
    assert read_log(Tail(plain), "rank3.log", 3).ranks[3]["exceptions"][0].type == "ValueError"
    one = LOG[LOG.index("Root Cause") :]
    assert set(read_log(Tail(plain + one), "job.log", None).ranks) == {0}


MEMBER = "n1:7:9 [0] NCCL INFO ncclCommInitRankConfig comm 0x5 rank {} nranks {} cudaDev 0 busId 0 - Init COMPLETE\n"


def test_nccls_own_file_is_of_the_rank_that_it_says_and_not_of_the_device():
    fault = "n1:7:9 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<5> with status=12 opcode=0\n"
    found = read_log(Tail(MEMBER.format(3, 8) + MEMBER.format(3, 4) + fault), "nccl.n1.7.log", None)
    own = found.ranks[3]
    assert (own["host"], own["nccl_path"], own["nccl"].faults[0].line) == ("n1", "nccl.n1.7.log", 3)
    assert "stderr_tail" not in own and found.unknown == ()


def test_nccls_own_file_whose_rank_is_not_certain_is_nobodys():
    for text in (MEMBER.format(3, 8) + MEMBER.format(1, 2), "n1:7:9 [3] NCCL INFO Using network IB\n"):
        found = read_log(Tail(text), "nccl.n1.7.log", None)
        assert not found.ranks and found.unknown[0].what == "the rank of the NCCL output in nccl.n1.7.log"
        assert read_log(Tail(text), "nccl.rank5.log", 5).ranks[5]["nccl"].host == "n1"


def test_what_nccl_says_between_is_not_the_failed_ranks():
    one = LOG[LOG.index("Root Cause") :]
    found = read_log(Tail("n1:7:9 [3] NCCL INFO Using network IB\n" + one), "job.log", None)
    assert "nccl" not in found.ranks[0] and found.unknown


def test_what_is_a_log():
    assert is_log(LOG)
    assert not is_log("shopping list\nmilk\n")
