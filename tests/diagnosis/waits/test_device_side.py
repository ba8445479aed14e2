"""Sixteen ranks on NCCL whose devices 4 and 11 do not complete an operation that all others have completed.

The form follows public sets of flight recorders, with values of its own.
"""

import json

import pytest

from distdbg.collect.runs.explaining import load
from distdbg.diagnosis.timeline.device import open_operations
from distdbg.diagnosis.timeline.groups import groups
from distdbg.diagnosis.verdict import build_report
from distdbg.diagnosis.waits.transfers import device_transfer

RANKS, STUCK, NUMBER = range(16), (4, 11), 7473
T_NS = 1_790_000_000_000_000_000


def entry(number, state, group="0", description="default_pg", operation="_all_gather_base", after=0):
    return {
        "process_group": [group, description], "pg_id": int(group), "collective_seq_id": number, "p2p_seq_id": 0,
        "profiling_name": f"nccl:{operation}", "state": state, "retired": state == "completed", "is_p2p": False,
        "record_id": number, "time_created_ns": T_NS + number + after, "timeout_ms": 600_000, "frames": [],
        "input_sizes": [[1024]], "input_dtypes": ["BFloat16"], "output_sizes": [[16384]],
        "output_dtypes": ["BFloat16"], "time_discovered_started_ns": None, "time_discovered_completed_ns": None,
    }  # fmt: skip


def completed_on(rank):
    return NUMBER - 1 if rank in STUCK else NUMBER


def recorder(rank, *, ahead=3, active_only=False):
    """Hosts are `ahead` operations ahead of their devices; each pair of ranks has a group that all wait in later."""
    done, last = completed_on(rank), NUMBER + ahead
    first = done + 1 if active_only else NUMBER - 20
    entries = [entry(n, "completed" if n <= done else "scheduled") for n in range(first, last + 1)]
    pair = f"[{rank // 2 * 2}, {rank // 2 * 2 + 1}]"
    name = str(1 + rank // 2)
    entries += [entry(50, "scheduled", name, "mesh_tp", "allreduce", after=NUMBER)]
    pg_config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(RANKS))}}
    pg_config[name] = {"name": name, "desc": "mesh_tp", "ranks": pair}
    return {"version": "2.9", "pg_config": pg_config, "pg_status": {}, "entries": entries}


def watchdog(rank, completed=completed_on):
    open_, last = completed(rank) + 1, NUMBER + 9
    head = f"[rank{rank}]:[E1125 03:21:17.399500803 ProcessGroupNCCL.cpp:"
    where = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}]"
    return (
        f"{head}730] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={open_}, "
        f"OpType=_ALLGATHER_BASE, NumelIn=1024, NumelOut=16384, Timeout(ms)=600000) ran for 600012 milliseconds before "
        f"timing out.\n{head}2372] {where}  failure detected by watchdog at work sequence id: {open_} PG status: last "
        f"enqueued work: {last}, last started work: -1, last completed work: {open_ - 1}\n"
    )


def written(folder, of, name):
    for rank in RANKS:
        text = of(rank)
        (folder / name.format(rank)).write_text(text if isinstance(text, str) else json.dumps(text))
    return folder


def verdict(folder):
    """(id, ranks, side) of the roots, and the report."""
    report = build_report(load([folder]))
    return [(f.id, f.ranks, f.side) for f in report.findings if f.explained_by is None], report


@pytest.mark.parametrize(
    "of",
    [recorder, lambda r: recorder(r, active_only=True), lambda r: recorder(r, ahead=0 if r in STUCK else 1)],
    ids=["hosts far ahead", "open entries only", "host of the stuck waits there"],
)
def test_the_ranks_whose_devices_are_stuck_come_first_and_alone(tmp_path, of):
    roots, report = verdict(written(tmp_path, of, "nccl_trace_rank_{}"))
    assert roots == [("stuck-on-device", STUCK, "device")], report
    assert "before the dump" not in report.findings[0].cause


def test_the_logs_alone_name_them_too(tmp_path):
    roots, report = verdict(written(tmp_path, watchdog, "rank{}.log"))
    assert [root for root in roots if root[0] == "stuck-on-device"] == [("stuck-on-device", STUCK, "device")], report
    assert roots[0][1] == STUCK, report


def test_who_has_completed_four_more_is_out_of_step_with_a_device_that_is_blamed_by_nobody(tmp_path):
    """Real devices of one group complete its collectives together: they called others."""
    roots, report = verdict(
        written(tmp_path, lambda r: watchdog(r, lambda r: NUMBER - 1 if r == 0 else NUMBER + 3), "rank{}.log")
    )
    assert not [root for root in roots if root[0] != "nccl-error"], report
    (why,) = [u.because for u in report.unknown if u.what == "why the job stands still"]
    assert "out of step" in why and f"number {NUMBER} " in why


def test_one_whose_file_is_lost_is_not_named_for_it(tmp_path):
    folder = written(tmp_path, recorder, "nccl_trace_rank_{}")
    (folder / "nccl_trace_rank_9").unlink()
    roots, _ = verdict(folder)
    assert not [root for root in roots if root[1] not in (STUCK, (9,), (4, 9, 11))], roots


def test_a_dimension_of_a_mesh_names_its_group(tmp_path):
    def waits(rank):
        pg_config = {"3": {"name": "3", "desc": "mesh_tp", "ranks": "[8, 9, 10, 11]"}}
        here = [entry(5, "scheduled", "3", "mesh_tp", "allreduce")] if rank != 9 else []
        return {"version": "2.9", "pg_config": pg_config, "pg_status": {},
                "entries": [entry(4, "completed", "3", "mesh_tp", "allreduce"), *here]}  # fmt: skip

    for rank in (8, 9, 10, 11):
        (tmp_path / f"nccl_trace_rank_{rank}").write_text(json.dumps(waits(rank)))
    _, report = verdict(tmp_path)
    found = next(f for f in report.findings if f.ranks == (9,))
    assert "the tp group of ranks 8-11" in found.summary and found.side == "host"


def transfer(number, way, me, peer, state="completed", *, record_id=0):
    arrow = "->" if way == "send" else "<-"
    name = f"nccl:{way} {me}{arrow}{peer}"
    return entry(0, state) | {"profiling_name": name, "is_p2p": True, "p2p_seq_id": number, "record_id": record_id,
                              "time_created_ns": T_NS + number}  # fmt: skip


def batch(number, me, state="completed", record_id=0):
    """A ring of three: send ahead, receive from behind."""
    ends = entry(0, state) | {"profiling_name": "nccl:coalesced", "p2p_seq_id": number}
    ahead, behind = (me + 1) % 3, (me - 1) % 3
    return [
        transfer(number, "send", me, ahead, "scheduled", record_id=record_id),
        transfer(number, "recv", me, behind, "scheduled", record_id=record_id), ends,
    ]  # fmt: skip


@pytest.mark.parametrize("lost", [0, 1000], ids=["whole", "older ones are lost"])
def test_a_batch_waits_for_each_peer_that_has_not_begun_it(tmp_path, lost):
    """Rank 1 has not come; rank 0 waits for it, and rank 2 for both by its batch. Recorders begin at other numbers."""
    pg_config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
    for rank, first in ((0, 1), (1, 1 if not lost else 3), (2, 1)):
        entries = [e for n in range(first, 5) for e in batch(n, rank, record_id=lost)]
        entries += batch(5, rank, "scheduled", record_id=lost) if rank != 1 else []
        (tmp_path / f"nccl_trace_rank_{rank}").write_text(
            json.dumps({"version": "2.9", "pg_config": pg_config, "pg_status": {}, "entries": entries})
        )
    roots, report = verdict(tmp_path)
    assert roots == [("collective-not-joined", (1,), "host")], report


def test_both_halves_with_one_peer_count(tmp_path):
    """Rank 0 sends to rank 1 and receives from it in one batch; rank 1 has sent, and never receives."""
    pg_config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    ends = entry(0, "scheduled") | {"profiling_name": "nccl:coalesced", "p2p_seq_id": 1}
    both = [transfer(1, "send", 0, 1, "scheduled"), transfer(1, "recv", 0, 1, "scheduled"), ends]
    for rank, entries in ((0, both), (1, [transfer(1, "send", 1, 0)])):
        written = {
            "version": "2.9",
            "pg_config": pg_config,
            "pg_status": {},
            "entries": [entry(1, "completed"), *entries],
        }
        (tmp_path / f"nccl_trace_rank_{rank}").write_text(json.dumps(written))
    dump = load([tmp_path]).dump
    opened = open_operations(dump, groups(dump, {}))
    found = device_transfer(0, opened[0].transfers, dump, opened)
    assert (found.what, found.awaited) == ("send to rank 1 and recv from rank 1", (1,))


def test_without_start_times_no_device_is_blamed_for_a_broadcast(tmp_path):
    """Which of the two lets the other wait, nobody knows: the ranks before them have completed their part."""

    def broadcasts(rank):
        states = ("completed", "completed" if rank < 2 else "scheduled")
        pg_config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
        entries = [entry(n, state, operation="broadcast") for n, state in enumerate(states, 1)]
        return {"version": "2.9", "pg_config": pg_config, "pg_status": {}, "entries": entries}

    for rank in range(4):
        (tmp_path / f"nccl_trace_rank_{rank}").write_text(json.dumps(broadcasts(rank)))
    roots, report = verdict(tmp_path)
    assert not roots and report.unknown, report


def test_logs_that_do_not_tell_who_is_in_a_group_blame_no_device(tmp_path):
    for rank, group in ((0, "1"), (1, "2")):
        where = f"[PG ID {group} PG GUID {group}(undefined) Rank {rank}]"
        text = watchdog(rank).replace(f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}]", where)
        (tmp_path / f"rank{rank}.log").write_text(text)
    roots, report = verdict(tmp_path)
    assert not [root for root in roots if root[0] != "nccl-error"], report


def test_the_abort_that_a_watchdog_ends_a_rank_with_is_no_error_of_its_own(tmp_path):
    """faulthandler shows where the main thread was: it waited, as all ranks whose devices wait."""
    aborted = (
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        "  what():  [PG ID 0 PG GUID 0(default_pg) Rank 0] Process group watchdog thread terminated with exception: "
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7474, OpType=_ALLGATHER_BASE, "
        "NumelIn=1024, NumelOut=16384, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.\n"
        "Fatal Python error: Aborted\n\nThread 0x00007f9714833b80 (most recent call first):\n"
        '  File "/venv/torch/cuda/__init__.py", line 1219 in synchronize\n  File "/job/train.py", line 21 in <module>\n'
    )
    roots, report = verdict(written(tmp_path, lambda r: watchdog(r) + (aborted if r == 0 else ""), "rank{}.log"))
    assert roots == [("stuck-on-device", STUCK, "device")], report


def test_two_watchdogs_that_throw_at_once_are_no_error_of_their_rank(tmp_path):
    """The second one ends the process before the first has printed the message of its exception."""
    for rank, group in ((0, "1"), (1, "2")):
        where = f"[PG ID {group} PG GUID {group}(undefined) Rank {rank}]"
        text = watchdog(rank).replace(f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}]", where)
        if rank == 1:
            text += "terminate called after throwing an instance of 'c10::DistBackendError'\n"
            text += "terminate called recursively\n"
        (tmp_path / f"rank{rank}.log").write_text(text)
    roots, report = verdict(tmp_path)
    assert "rank-exception" not in {root[0] for root in roots}, report


def test_sizes_that_differ_inside_coalesced_operations(tmp_path):
    """The first part of the number is alike on both ranks; the second is not."""
    pg_config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    for rank, size in ((0, [7, 7]), (1, [6, 6])):
        parts = [
            entry(2, "started") | {"profiling_name": "nccl:_broadcast_oop", "input_sizes": [sizes]}
            for sizes in ([6, 6], size)
        ]
        ends = entry(2, "started") | {"profiling_name": "nccl:ALLGATHER_coalesced", "input_sizes": [[]]}
        written = {"version": "2.10", "pg_config": pg_config, "entries": [entry(1, "completed"), *parts, ends]}
        (tmp_path / f"nccl_trace_rank_{rank}").write_text(json.dumps(written))
    roots, report = verdict(tmp_path)
    assert [root[:2] for root in roots] == [("collective-shape-mismatch", (0, 1))], report
    assert all(size in report.findings[0].summary for size in ("[7, 7]", "[6, 6]"))
