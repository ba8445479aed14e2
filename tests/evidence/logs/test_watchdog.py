"""The watchdog's lines of several versions of torch as recorders: what was enqueued, completed, and timed out."""

import pytest

from distdbg.evidence.logs.watchdog import Watchdogs, nccl_error
from distdbg.evidence.recorder.log import Signatures


def timed_out(rank, sequence, operation="ALLREDUCE", size=64, prefix=""):
    return (
        f"[rank{rank}]:[E1125 03:21:17.399500803 ProcessGroupNCCL.cpp:730] {prefix or f'[Rank {rank}]'} Watchdog "
        f"caught collective operation timeout: WorkNCCL(SeqNum={sequence}, OpType={operation}, NumelIn={size}, "
        f"NumelOut={size}, Timeout(ms)=8000) ran for 8088 milliseconds before timing out."
    )


def status(rank, about, enqueued, completed, *, group="PG ID 0 PG GUID 0(default_pg)", started=-1, inner=None):
    return (
        f"[rank{rank}]:[E1125 03:21:17.399661873 ProcessGroupNCCL.cpp:2372] [{group} Rank "
        f"{rank if inner is None else inner}]  failure detected by watchdog at work sequence id: {about} PG status: "
        f"last enqueued work: {enqueued}, last started work: {started} (), last completed work: {completed}"
    )


def read(*lines, rank=None):
    signatures = Signatures()
    found = Watchdogs()
    found.read(lines, rank)
    return found.recorders(signatures), signatures


def test_what_timed_out_and_what_was_enqueued():
    found, signatures = read(timed_out(3, 8), status(3, 8, 9, 7))
    group = found[3].groups["0", "nccl"]
    assert (group.description, group.last, list(group.sequence), group.first_open) == ("default_pg", 9, [8], 0)
    assert str(signatures[group.signature[0]]) == "all_reduce of 64 elements"
    assert (group.on_device, group.started, group.index(9), group.index(7)) == (True, None, None, None)


def test_the_form_of_torch_2_4_has_the_group_in_the_line_itself():
    line = timed_out(1, 1173, "_ALLGATHER_BASE", prefix="[PG 0 Rank 1]")
    old = "[rank1]:[E ProcessGroupNCCL.cpp:1] [PG 0 Rank 1] Timeout at NCCL work: 1173"
    found, signatures = read(line, f"{old}, last enqueued NCCL work: 1179, last completed NCCL work: 1172.")
    group = found[1].groups["0", "nccl"]
    assert (list(group.sequence), group.last) == ([1173], 1179)
    assert signatures[group.signature[0]].operation == "all_gather_into_tensor"


def test_a_rank_that_only_reports_its_status_has_no_open_operation():
    found, _ = read(status(2, 8, 7, 7))
    group = found[2].groups["0", "nccl"]
    assert (group.last, group.first_open, list(group.sequence)) == (7, None, [])


def test_an_operation_belongs_to_the_group_whose_status_names_it():
    tp = "PG ID 2 PG GUID 5(mesh_tp)"
    found, _ = read(timed_out(6, 40), status(6, 40, 41, 39, group=tp, inner=0), status(6, 12, 30, 30))
    groups = found[6].groups
    assert groups.keys() == {("5", "nccl"), ("0", "nccl")}
    assert (groups["5", "nccl"].first_open, groups["0", "nccl"].first_open) == (0, None)
    assert groups["5", "nccl"].description == "mesh_tp"


def test_start_times_where_they_are_recorded():
    found, _ = read(timed_out(0, 8), status(0, 8, 8, 7, started=8), timed_out(1, 8), status(1, 8, 8, 7, started=7))
    assert [found[r].groups["0", "nccl"].started for r in (0, 1)] == [True, False]


def test_the_desync_report_names_ranks_that_wrote_nothing():
    line = "[rank0]:[E1125]   - [2, 3] finished collective #7, but didn't join collective #8 (count from 1)"
    found, _ = read(timed_out(0, 8), status(0, 8, 8, 7), line)
    assert {rank: log.groups["0", "nccl"].last for rank, log in found.items()} == {0: 8, 2: 7, 3: 7}


@pytest.mark.parametrize(
    ("line", "rank", "owners"),
    [
        (status(1, 8, 8, 7).replace("[rank1]:", ""), None, [1]),  # the default group counts as the job does
        (status(1, 8, 8, 7, group="PG ID 1 PG GUID 5(tp)").replace("[rank1]:", ""), None, []),  # another does not
        (status(1, 8, 8, 7, group="PG ID 1 PG GUID 5(tp)").replace("[rank1]:", ""), 9, [9]),  # its log is known
        (status(99999999, 8, 8, 7), None, []),
        (timed_out(3, 8), None, []),  # nothing says of which group it is
        ("[rank0]: Traceback (most recent call last):", None, []),
    ],
)
def test_whose_a_line_is(line, rank, owners):
    assert sorted(read(line, rank=rank)[0]) == owners


def test_an_error_of_nccl_with_its_own_words():
    text = (
        "step 3\n[rank1]:[E1125 ProcessGroupNCCL.cpp:645] [Rank 1] Collective WorkNCCL(SeqNum=4, OpType=ALLREDUCE, "
        "NumelIn=16, NumelOut=16, Timeout(ms)=600000) raised the following async exception: NCCL error: remote process "
        "exited, NCCL version 2.29.7\nncclRemoteError: A call failed.\nLast error:\nConnection closed by 10.0.0.1<4>\n"
    )
    error = nccl_error(text)
    assert error is not None and error.line == 2
    assert error.message.endswith("NCCL version 2.29.7 (Connection closed by 10.0.0.1<4>)")
    assert nccl_error("step 3\nLast error:\nnone\n") is None


@pytest.mark.parametrize("operation", ["SEND", "RECV", "COALESCED"])
def test_the_numbers_of_transfers_are_not_compared(operation):
    """Each rank counts its own: that rank 1 has enqueued fewer says nothing."""
    found, _ = read(timed_out(0, 37, operation, size=0), status(0, 37, 37, 36), status(1, 5, 5, 5))
    assert (found[0].groups, [(t.group, t.peer, t.done) for t in found[0].transfers]) == ({}, [("0", None, False)])


def test_several_logs_tell_together_and_a_rank_of_itself_first():
    lag = "[rank0]:[E1125]   - [2] finished collective #7, but didn't join collective #8 (count from 1)"
    found = Watchdogs()
    found.read([timed_out(0, 8), status(0, 8, 9, 7), lag], 0, "logs/0")
    found.read([status(2, 8, 7, 7)], 2, "logs/2")
    logs = found.recorders(Signatures(), operations=False)
    assert (logs[0].groups["0", "nccl"].first_open, logs[0].groups["0", "nccl"].last) == (None, 9)
    assert (logs[2].groups["0", "nccl"].completes(7), logs[2].groups["0", "nccl"].completes(8)) == (True, False)
    assert found.paths == {0: "logs/0", 2: "logs/0"}
