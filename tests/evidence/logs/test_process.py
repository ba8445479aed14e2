"""One process as logs show it, made a rank's record or added to one."""

from distdbg.evidence.logs.nccl import NcclLog
from distdbg.evidence.logs.process import LoggedProcess
from distdbg.evidence.run import UNKNOWN_RANK, ExceptionFact, RankRecord

ERROR = ExceptionFact(3, "ValueError", "planted", "ValueError: planted", 1.0, uncaught=True)


def test_a_rank_of_which_only_a_log_is_known():
    record = LoggedProcess(3, 1, "node7", exceptions=[ERROR], ended_by_watchdog=True).record(2)
    assert (record.rank, record.local_rank, record.node_rank, record.host) == (3, 1, 2, "node7")
    assert record.from_log and record.ended_by_watchdog and record.exceptions == (ERROR,)
    assert record.exit_code is None and record.exit_unknown_because


def test_what_is_known_where_the_rank_is_not():
    record = LoggedProcess.of_unknown_rank("node7", pid=41, local_rank=3).record(0)
    assert (record.rank, record.local_rank, record.place) == (UNKNOWN_RANK, 3, "local rank 3, host node7")
    assert LoggedProcess.of_unknown_rank("", "train-3", 41).place == "pid 41, pod train-3"


def test_what_a_record_says_itself_is_kept():
    own = RankRecord(3, 1, 2, "node7", pid=41, exceptions=(ERROR,), exit_path="ranks/00003/exit.json")
    record = LoggedProcess(3, host="other", exit_code=-9, stderr_tail="Killed", stderr_path="a.log").added_to(own)
    assert (record.host, record.pid, record.exceptions, record.exit_path) == (own.host, 41, (ERROR,), own.exit_path)
    assert (record.exit_code, record.exit_unknown_because, record.stderr_path) == (-9, "", "a.log")


def test_a_file_of_nccl_alone_adds_what_nccl_says():
    own = RankRecord(3, 1, 2, "node7", stderr_tail="of the run")
    record = LoggedProcess(3, exit_code=1, nccl=NcclLog("node7"), nccl_path="nccl.log").added_to(own)
    assert (record.nccl, record.nccl_path) == (NcclLog("node7"), "nccl.log")
    assert (record.exit_code, record.stderr_tail, record.from_log) == (None, "of the run", False)
