"""No rank has begun to train: which look makes `start-stalled`, and what drops it."""

from dataclasses import replace

import pytest

from distdbg.diagnosis.verdict import build_report
from distdbg.evidence.stacks.threads import Frame
from distdbg.protocol.launcher_events import Stalled, WentOn
from tests.hang_cases import blind, c10d, evidence, made, sleeps, user
from tests.made_dump import BOOT, TORCH, T, frame

NOTHING_HEARD = {"heard": 0, "step": 0, "calls": 0, "quiet_s": 61.0}
JOINS = made(c10d("init_process_group"), page=NOTHING_HEARD)
FETCHES = sleeps(log=False, page=NOTHING_HEARD)


def start(ranks, *events):
    run = evidence(ranks, reason="start", quiet_s=61.0)
    joining = tuple(replace(record, initialised=False) for record in run.ranks)
    return replace(run, ranks=joining, events=tuple((n, event.record(T + 60)) for n, event in enumerate(events)))


def test_the_rank_that_the_others_wait_for_is_named_and_nothing_is_an_error():
    report = build_report(start({0: JOINS, 1: FETCHES, 2: JOINS}))
    (found,) = report.findings
    assert (found.id, found.severity, found.ranks) == ("start-stalled", "warning", (1,))
    assert "train.py:16" in found.summary and "ranks 0,2 wait for rank 1" in found.summary
    assert not report.unknown
    assert report.outcome != "hung"


def test_where_nobody_waits_all_ranks_are_named():
    (found,) = build_report(start({0: FETCHES, 1: FETCHES})).findings
    assert (found.id, found.ranks) == ("start-stalled", (0, 1))


def test_once_it_is_a_hang_the_rank_has_its_own_finding():
    stalled = Stalled(attempt=1, since=T - 90, quiet_s=90.0, timeout_s=90.0)
    (found,) = build_report(start({0: JOINS, 1: FETCHES, 2: JOINS}, stalled)).findings
    assert (found.id, found.severity, found.ranks) == ("stuck-in-python", "error", (1,))


def test_a_start_that_came_to_its_end_has_no_finding():
    went_on = WentOn(attempt=1, since=T + 30, quiet_s=0.0)
    assert build_report(start({0: JOINS, 1: FETCHES}, went_on)).findings == ()


def test_a_stopped_rank_is_an_error_at_once():
    ranks = {0: JOINS, 1: sleeps(log=False, page=NOTHING_HEARD, state="T")}
    assert [f.id for f in build_report(start(ranks)).findings if f.severity == "error"] == ["process-stopped"]


@pytest.mark.parametrize(("ports", "apart"), [((29500, 29501), True), ((29500, 29500), False)])
def test_ranks_that_meet_at_different_ports(ports, apart):
    def joins(rank):
        known = {"hostname": '"node1"', "port": str(ports[rank])}
        meets = Frame("_create_c10d_store", f"{TORCH}/distributed/rendezvous.py", 199, known)
        return made((meets, *c10d("init_process_group")), page=NOTHING_HEARD)(rank)

    (found,) = build_report(start({0: joins, 1: joins})).findings
    assert "init_process_group (at node1:29500) at train.py" in found.summary
    assert ("different ports (29500, 29501)" in found.cause) is apart


@pytest.mark.parametrize(("counts", "words"), [
    ({}, "no rank has begun to train"),
    ({"calls": 7}, "no rank goes on, after 7 calls of torch.distributed"),
    ({"calls": 2, "backwards": 31}, "no rank goes on, after 2 calls of torch.distributed and 31 backwards"),
])  # fmt: skip
def test_what_has_been_made_before_is_counted(counts, words):
    ranks = {0: JOINS, 1: sleeps(log=False, page={**NOTHING_HEARD, **counts})}
    (found,) = build_report(start(ranks)).findings
    assert found.summary.startswith(words)


def test_a_dump_for_another_reason_is_no_start():
    assert "start-stalled" not in [f.id for f in build_report(evidence({0: blind(), 1: sleeps(log=False)})).findings]


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        (frame("_find_and_load", "<frozen importlib._bootstrap>", 1176), "In an import: rank 1."),
        (
            frame("hf_hub_download", "/env/lib/python3.11/site-packages/huggingface_hub/file_download.py", 9),
            "a download",
        ),
        (frame("compile_fx", f"{TORCH}/_inductor/compile_fx.py", 9), "a compilation"),
        (frame("_try_get_data", f"{TORCH}/utils/data/dataloader.py", 9), "the wait for a batch"),
    ],
)
def test_what_a_rank_is_busy_with_before_it_trains(inner, words):
    starts = made((inner, user(3), *BOOT), call="read", page=NOTHING_HEARD)
    (found,) = build_report(start({0: JOINS, 1: starts})).findings
    assert words in found.cause
    assert "In the set-up of a process group: rank 0." in found.cause
