"""What a log does not decide is said once, and only where no other line decides it."""

import pytest

from distdbg.collect.runs.explaining import load
from distdbg.diagnosis.failures.findings import who
from distdbg.diagnosis.verdict import build_report
from distdbg.diagnosis.waits.hang import hang_of
from distdbg.diagnosis.waits.picture import picture_of
from distdbg.diagnosis.waits.undecided import MISSING_RANK
from distdbg.report.page.collectives_drawing import draw_groups
from distdbg.report.text.collectives_text import groups_lines

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


_STATUS = (
    "[rank{rank}]:[E501 10:00:01.2 ProcessGroupNCCL.cpp:2168] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure "
    "detected by watchdog at work sequence id: 12 PG status: last enqueued work: 12, last completed work: 11\n"
)
_SIGNALLED = (
    "[rank5]:[E501 10:00:00.0 ProcessGroupNCCL.cpp:1682] [PG ID 0 PG GUID 0(default_pg) Rank 5] Received a dump signal "
    "due to a collective timeout from  rank 1. Last enqueued NCCL work: 12, last completed NCCL work: 11.\n"
)
#: the two forms of a watchdog's lines, of ranks 0 and 5 of a job whose size no line gives
OF_TWO_RANKS = TIMED_OUT + _STATUS.format(rank=0) + _SIGNALLED


@pytest.fixture
def two_ranks(tmp_path):
    path = tmp_path / "job.log"
    path.write_text(OF_TWO_RANKS)
    return load([path])


def test_no_statement_about_ranks_that_were_not_read(two_ranks):
    report = build_report(two_ranks)
    hang = hang_of(two_ranks)
    assert not [finding for finding in report.verdict if finding.severity == "error"]
    assert [(wait.waiting, hang.has_all_members(wait)) for wait in hang.waits] == [((0,), False)]
    assert not any(words in unknown.because for unknown in report.unknown for words in ("every host", "at fault"))
    assert not two_ranks.has_all_ranks
    assert who(two_ranks, (0, 5)) == "ranks 0,5"


def test_table_of_collectives_marks_begun_but_unrecorded(two_ranks):
    hang = hang_of(two_ranks)
    picture = picture_of(hang.dump, groups=hang.groups, hang=hang)
    timelines, culprits = picture.timelines, picture.culprits
    cells = {line.split()[1]: line.split()[2] for line in groups_lines(timelines, culprits) if "rank " in line}
    assert cells == {"0": "[a]", "5": "?"}
    (drawing,), _ = draw_groups(timelines, culprits)
    assert ["not begun" in bar.title for row in drawing.rows for bar in row.bars] == [False, False]


LOST_CONNECTION = (
    "gpu-17:88120:88233 [3] include/socket.h:427 NCCL WARN Net : Connect to 172.22.0.4<52207> failed : "
    "Connection refused\n"
)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (LOST_CONNECTION, None),
        (RAISED.replace("Tr", "[rank3]: Tr").replace("Va", "[rank3]: Va"), None),
        ("slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED ***\nsrun: error: n1: task 3: Exited with exit code 9\n", 9),
    ],
    ids=["a lost connection", "an exception", "an exit code"],
)
def test_an_exit_code_is_stated_only_if_a_line_has_it(tmp_path, text, code):
    path = tmp_path / "job.log"
    path.write_text(text)
    report = build_report(load([path]))
    assert (report.outcome, report.exit_code) == ("failed", code)
