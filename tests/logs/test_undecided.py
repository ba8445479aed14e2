"""What a log does not decide is said once, and only where no other line decides it."""

import pytest

from distdbg.collect.runs.explaining import load
from distdbg.diagnosis.verdict import build_report
from distdbg.diagnosis.waits.undecided import MISSING_RANK

TIMED_OUT = (
    "[rank0]:[E501 10:00:00.1 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) ran for 600001 ms "
    "before timing out.\n"
)
RAISED = "Traceback (most recent call last):\nValueError: x\n"


@pytest.mark.parametrize(
    ("after", "undecided"),
    [
        ("", True),
        (RAISED.replace("Tr", "[rank3]: Tr").replace("Va", "[rank3]: Va"), False),
        ("[rank0]: torch.distributed.DistBackendError: NCCL communicator was aborted on rank 0.\n", True),
        (RAISED, True),
    ],
    ids=["alone", "a rank's own error", "a consequence", "an error of an unknown rank"],
)
def test_for_whom_the_others_waited(tmp_path, after, undecided):
    path = tmp_path / "job.log"
    path.write_text(TIMED_OUT + after)
    report = build_report(load([path]))
    assert (MISSING_RANK in report.unknown) is undecided
    assert len(report.unknown) == undecided
