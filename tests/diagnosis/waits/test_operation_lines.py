"""The thread that began the operation which a rank waits in, where two threads of it use one group."""

import pytest

from distdbg.diagnosis.verdict import build_report
from distdbg.diagnosis.waits.hang import hang_of
from distdbg.evidence.recorder.calls import Call
from tests.hang_cases import SIGNATURES, blind, c10d, evidence, in_groups, made, roots, waits
from tests.made_dump import SCRIPT, T, recorder, thread

MAIN, SAVER = 26, 13


def saver(operation="all_gather"):
    return lambda pid: thread(pid, c10d(operation, SAVER)[:3], os_id=pid + 1, name="saver_0")


def call(operation, line, ago, number):
    return Call(int((T - ago) * 1e9) - 1000, operation, SCRIPT, line, "save", number=number)


def two_threads(of_thread, of_main, *, calls=True, threads=None):
    """Eight operations, then one of a thread and one of the main thread, both open."""
    done = [("all_reduce", 40.0 - n, True) for n in range(8)]
    log = recorder(SIGNATURES, ("0", [*done, (of_thread, 12.0, False), (of_main, 11.0, False)], 1))
    written = (call(of_thread, SAVER, 12.0, 9), call(of_main, MAIN, 11.0, 10)) if calls else ()
    return made(c10d(of_main, MAIN), log=log, threads=[saver(of_thread)] if threads is None else threads, calls=written)


@pytest.mark.parametrize("calls", [True, False])
def test_operation_has_the_line_of_its_own_thread(calls):
    run = evidence({0: two_threads("all_gather", "all_reduce", calls=calls), 1: waits(9)})
    hang = hang_of(run)
    assert (hang.of_threads[0].thread, hang.of_threads[0].function) == ("thread saver_0", "all_gather")
    assert (hang.frame_of(0).line, hang.standings[0].frame.line) == (SAVER, MAIN)
    report = build_report(run)
    assert roots(report) == [("collective-mismatch", (0, 1))]
    assert f"thread saver_0 is in all_gather at train.py:{SAVER}" in report.findings[0].cause
    assert "thread saver_0" in report.findings[0].evidence[0].where


@pytest.mark.parametrize(("groups", "ids"), [(1, [("collective-mismatch", (0, 1))]), (2, []), (None, [])])
def test_two_threads_by_stacks_alone(groups, ids):
    """A plain torchrun job: the rank has one process group, and two of its threads stand in it."""
    run = evidence(
        {0: in_groups(blind("all_reduce", threads=[saver()]), groups), 1: in_groups(blind("all_reduce"), groups)}
    )
    report = build_report(run)
    assert roots(report) == ids
    if ids:
        assert f"rank 0 in all_gather at train.py:{SAVER}, rank 1 in all_reduce" in report.findings[0].summary
        assert "On rank 0 two threads use its only process group" in report.findings[0].cause


def test_two_threads_in_the_same_function_are_told_apart_by_their_calls():
    run = evidence({0: two_threads("all_reduce", "all_reduce"), 1: waits(9, operation="barrier")})
    assert hang_of(run).frame_of(0).line == SAVER
    unknown = evidence({0: two_threads("all_reduce", "all_reduce", calls=False), 1: waits(9, operation="barrier")})
    assert hang_of(unknown).of_threads == {}


def test_older_operation_of_the_same_thread_has_the_line_of_its_call():
    run = evidence({0: two_threads("all_gather", "all_reduce", threads=()), 1: waits(9)})
    assert hang_of(run).of_threads == {}
    assert hang_of(run).frame_of(0).line == SAVER


def test_thread_in_a_group_of_its_own_is_no_second_user():
    run = evidence({0: waits(9, threads=[saver()], groups=[("7", [("all_gather", 5.0, False)], 1)]), 1: waits(9)})
    assert hang_of(run).of_threads == {}
