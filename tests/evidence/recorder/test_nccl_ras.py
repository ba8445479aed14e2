"""NCCL's own counts: ranks that are behind and wait for no rank, and cases without such a rank."""

from dataclasses import replace

import pytest

from distdbg.diagnosis.verdict import build_report
from distdbg.evidence.recorder.nccl_ras import behind, read_ras, unreachable
from tests.hang_cases import blind, evidence, roots, sleeps, waits


def communicator(name, counts, missing=()):
    """`counts` is {rank: {operation: number}}, `missing` (rank, unresponsive, considered dead)."""
    place = {"host": "10.0.0.1", "cuda_dev": 0, "nvml_dev": 0}
    status = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False}
    return {
        "hash": name, "secondary_hash": "0x1:0x2", "size": len(counts) + len(missing), "ranks_count": len(counts),
        "missing_ranks_count": len(missing),
        "ranks": [{"rank": n, "pid": 1000 + rank, **place, "status": status,
                   "collective_counts": {"Broadcast": 1, "AllReduce": 0, **launched}}
                  for n, (rank, launched) in enumerate(counts.items())],
        "missing_ranks": [{"rank": len(counts) + n, "pid": 1000 + rank, **place,
                           "status": {"unresponsive": silent, "considered_dead": dead}}
                          for n, (rank, silent, dead) in enumerate(missing)],
    }  # fmt: skip


def ras_answer(*communicators):
    return {"nccl_version": "2.28.9", "communicators_count": len(communicators), "communicators": list(communicators),
            "ras": {"collection_time_sec": 0.01, "timeouts_count": 0}}  # fmt: skip


def counts(**ranks):
    return {int(name[1:]): {"AllReduce": number} for name, number in ranks.items()}


WORLD = communicator("0xa", counts(r0=18, r1=18, r2=17, r3=18))
PAIR = communicator("0xb", counts(r2=5, r3=4))
BACK = communicator("0xb", counts(r2=5, r0=4))


def late(*communicators):
    return [
        (one.communicator.name, one.pids, one.count, one.most) for one in behind(read_ras(ras_answer(*communicators)))
    ]


def test_the_one_that_waits_for_nobody():
    assert late(communicator("0xa", counts(r0=18, r1=17, r2=16))) == [("0xa", (1002,), 16, 18)]
    assert late(WORLD) == [("0xa", (1002,), 17, 18)]
    # rank 2 is behind because it waits for rank 3 in a group of two; and rank 3 is ahead of it in the world
    assert late(communicator("0xa", counts(r0=18, r1=18, r2=17)), PAIR) == [("0xb", (1003,), 4, 5)]


@pytest.mark.parametrize(
    "communicators",
    [
        (communicator("0xa", counts(r0=18, r1=18)),),
        (WORLD, BACK),  # a circle: rank 0 waits for rank 2, and rank 2 for rank 0
        (communicator("0xa", {0: {"AllReduce": 3, "Reduce": 4}, 1: {"AllReduce": 4, "Reduce": 3}}),),
    ],
)
def test_no_rank_is_behind(communicators):
    assert late(*communicators) == []


def test_who_is_out_of_reach():
    found = read_ras(ras_answer(communicator("0xa", counts(r0=18), missing=[(1, True, False), (2, True, True)])))
    assert unreachable(found) == {1001: "does not answer", 1002: "is considered dead"}
    assert unreachable(read_ras(ras_answer(communicator("0xa", counts(r0=18), missing=[(1, False, False)])))) == {}


@pytest.mark.parametrize("value", [None, [], {}, {"communicators": 3}, {"communicators": [{"hash": 1, "size": "x"}]},
    ras_answer({"hash": "0xa", "size": 2,
               "ranks": [{"rank": None, "pid": 5}, 7, {"rank": 0, "pid": -1}]})])  # fmt: skip
def test_what_is_no_answer_is_left_out(value):
    assert read_ras(value) == ()


def judged(ranks, *communicators):
    known = evidence(ranks)
    dump = replace(
        known.dump, communicators=read_ras(ras_answer(*communicators)), communicators_path="dump/nccl-ras.json"
    )
    return build_report(replace(known, dump=dump))


def test_stacks_that_look_alike_are_distinguished():
    alike = {rank: blind("all_reduce") for rank in range(4)}
    assert roots(judged(alike)) == []
    report = judged(alike, WORLD)
    (found,) = (f for f in report.findings if f.severity == "error")
    assert (found.id, found.ranks, found.confidence) == ("collective-not-joined", (2,), "likely")
    assert found.summary.startswith("rank 2 has launched AllReduce 17 times in a communicator of 4 ranks")
    assert (found.evidence[0].path, found.evidence[0].where) == ("dump/nccl-ras.json", "communicator 0xa")
    gone = communicator("0xa", counts(r0=18, r1=18, r3=18), missing=[(2, True, True)])
    (found,) = (f for f in judged(alike, gone).findings if f.severity == "error")
    assert found.ranks == (2,) and "rank 2 is considered dead" in found.summary


def test_stacks_and_recorders_come_first():
    ranks = {0: waits(9), 1: waits(9), 2: waits(9), 3: sleeps(8)}
    assert roots(judged(ranks, WORLD)) == [("stuck-in-python", (3,))]
