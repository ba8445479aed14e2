"""Hosts that use NCCL, without flight recorder: by NCCL's own counts, else by their stacks; never in a circle."""

from dataclasses import replace

import pytest

from distdbg.diagnosis.verdict import build_report
from distdbg.evidence.recorder.nccl_ras import Communicator, RasRank
from distdbg.evidence.recorder.reading import read_recorder
from distdbg.protocol.dump import ProcessState
from tests.hang_cases import BOOT, SIGNATURES, blind, c10d, evidence, frame, made, roots, sleeps, stands_at, user
from tests.made_dump import TORCH, T

SYNCHRONIZES = (frame("synchronize", f"{TORCH}/cuda/__init__.py", 1219), user(13), *BOOT)
ITEM = (user(14), *BOOT)
LOADS = (frame("_MultiProcessingDataLoaderIter._try_get_data", f"{TORCH}/utils/data/dataloader.py", 1), user(9), *BOOT)


def nccl(number, *, open_, operation="all_reduce"):
    """A recorder with so many operations of the default group, the last of them open on the device or not."""
    return read_recorder({"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": [{
        "process_group": ["0", "default_pg"], "is_p2p": False, "collective_seq_id": n, "input_sizes": [[64]],
        "profiling_name": f"nccl:{operation if n == number else 'all_reduce'}", "input_dtypes": ["Float"],
        "state": "scheduled", "retired": not (open_ and n == number), "timeout_ms": 1000,
        "time_created_ns": int((T - 20 + n) * 1e9), "time_discovered_started_ns": None,
    } for n in range(1, number + 1)]}, SIGNATURES)  # fmt: skip


def ahead(make, looks=None):
    """It has a process group of NCCL, and nobody asked its recorder."""

    def build(rank):
        had = make(rank)
        seen = tuple(replace(look, process=nccl_process(look.process), recorder=None) for look in had.looks)
        return replace(had, looks=looks(seen) if looks else seen)

    return build


def nccl_process(process):
    return ProcessState(**{**process.fields(), "nccl": True})


def counted(run, launched, *, before=None):
    """With NCCL's answer: how many all_reduces each rank has launched."""

    def told(counts):
        ranks = (RasRank(r, 1000 + r, "node", {"AllReduce": count}) for r, count in counts.items())
        return (Communicator("0xa", len(counts), tuple(ranks)),)

    earlier = told(before) if before else ()
    return replace(run, dump=replace(run.dump, communicators=told(launched), communicators_before=earlier))


def judged(run):
    report = build_report(run)
    return roots(report), [u.because for u in report.unknown if "stands still" in u.what], report


@pytest.mark.parametrize(
    ("frames", "more"),
    [(SYNCHRONIZES, {}), (SYNCHRONIZES, {"call": "", "state": "R", "cpu": (0.0, 1.0)}), (ITEM, {}),
     (ITEM, {"call": "poll"}), (c10d("all_reduce"), {})],
    ids=["sleeps in it", "spins in it", "item", "polls the driver", "queue is full"],
)  # fmt: skip
def test_hosts_that_wait_for_their_devices_are_not_at_fault(frames, more):
    waiting = ahead(made(frames, **more))
    found, _, report = judged(evidence({0: waiting, 1: waiting, 2: ahead(sleeps())}))
    assert found == [("stuck-in-python", (2,))], report
    assert (report.findings[0].confidence, report.findings[0].side) == ("possible", "host")
    found, because, report = judged(evidence({0: waiting, 1: waiting, 2: waiting}))
    assert (found, len(because)) == ([], 1), report


def test_counts_of_nccl_outweigh_where_hosts_stand():
    """The host of rank 1 sleeps as well, and has launched as much as rank 0; so has that of rank 2 below."""
    ranks = {0: ahead(made(SYNCHRONIZES)), 1: ahead(sleeps(line=17)), 2: ahead(sleeps())}
    found, _, report = judged(counted(evidence(ranks), {0: 7, 1: 7, 2: 6}))
    assert found == [("stuck-in-python", (2,))] and report.findings[0].confidence == "certain", report
    found, because, report = judged(counted(evidence(ranks), {0: 7, 1: 7, 2: 7}))
    assert (found, len(because)) == ([], 1), report


def test_all_hosts_are_elsewhere():
    """None waits by its stack: only the counts can tell."""
    ranks = {0: ahead(sleeps(line=17)), 1: ahead(sleeps(line=17)), 2: ahead(sleeps())}
    found, because, report = judged(evidence(ranks))
    assert (found, len(because)) == ([], 1), report
    found, _, report = judged(counted(evidence(ranks), {0: 7, 1: 7, 2: 6}))
    assert found == [("stuck-in-python", (2,))], report


@pytest.mark.parametrize("counts", [None, {0: 73, 1: 72, 2: 73}], ids=["stacks alone", "NCCL counts"])
@pytest.mark.parametrize("operation", ["all_reduce", "all_gather"])
@pytest.mark.parametrize("flagged", [True, False], ids=["thread seen", "by the others' recorders"])
def test_a_host_without_recorder_in_a_collective_is_in_no_circle(counts, operation, flagged):
    """Its driver is blocked: it stands in a call that only enqueues, and the others' devices wait for it. Who it waits
    for is not known, so that it is no circle; NCCL's counts name it."""
    waits = made(SYNCHRONIZES, log=lambda _: nccl(73, open_=True))
    silent = blind(operation, missing={"recorder": "it does not answer in time"})
    run = evidence({0: waits, 1: ahead(silent) if flagged else silent, 2: waits})
    found, because, report = judged(counted(run, counts) if counts else run)
    if counts:
        assert found == [("collective-not-joined", (1,))], report
    else:
        assert (found, len(because)) == ([], 1) and "recorder of rank 1" in because[0], report


def test_a_host_that_devices_wait_for_in_its_own_call_waits_for_none_of_them():
    """Its driver is blocked, and its calls were not had: nothing says which group it is in, but they have come."""
    waits = made(SYNCHRONIZES, log=lambda _: nccl(73, open_=True))
    stuck = made(c10d("all_reduce"), log=lambda _: nccl(72, open_=False))
    found, because, report = judged(evidence({0: waits, 1: stuck, 2: waits}))
    assert found in ([], [("collective-not-joined", (1,))]), report
    assert found or because, report


def test_hosts_in_a_group_that_no_recorder_knows_yet_wait_for_who_is_elsewhere():
    """Its first collective connects it: until then it is only in the calls, and those were not had."""
    connects = made(c10d("all_reduce"), log=lambda _: nccl(72, open_=False))
    asleep = made((user(16, "fetch"), *BOOT), call="clock_nanosleep", log=lambda _: nccl(72, open_=False))
    found, _, report = judged(evidence({0: connects, 1: asleep, 2: connects}))
    assert found == [("stuck-in-python", (1,))], report


def test_a_loader_that_others_wait_for():
    ranks = {0: ahead(made(ITEM)), 1: ahead(stands_at(LOADS, call="poll")), 2: ahead(made(ITEM))}
    found, _, report = judged(evidence(ranks))
    assert found == [("stuck-in-dataloader", (1,))], report


def test_what_launches_meanwhile_moves():
    """A dump on request, of a job without heartbeats: its ranks stand in the same lines in both looks."""
    ranks = {r: ahead(made(ITEM, page=None)) for r in (0, 1)} | {2: ahead(sleeps(page=None))}
    still = evidence(ranks, quiet_s=None, reason="asked")
    found, _, report = judged(counted(still, {0: 7, 1: 7, 2: 6}, before={0: 7, 1: 7, 2: 6}))
    assert found == [("stuck-in-python", (2,))], report
    found, _, report = judged(counted(still, {0: 8, 1: 8, 2: 7}, before={0: 7, 1: 7, 2: 6}))
    assert not found, report


def test_a_device_that_completes_meanwhile_moves():
    """By its recorder; no heartbeat changes, since the host waits for a long queue."""

    def later(number):
        return lambda looks: (replace(looks[0], recorder=nccl(7, open_=True)),
                              replace(looks[1], recorder=nccl(number, open_=True)))  # fmt: skip

    for number, names in ((7, [("stuck-in-python", (2,))]), (8, [])):
        waiting = ahead(made(ITEM), looks=later(number))
        asleep = made((user(16, "fetch"), *BOOT), call="clock_nanosleep", log=lambda _: nccl(6, open_=False))
        found, _, report = judged(evidence({0: waiting, 1: waiting, 2: asleep}))
        assert found == names, report
