"""The first operation of groups that NCCL still connects: no recorder has it, the calls of the ranks do."""

from __future__ import annotations

from distdbg.diagnosis.verdict import build_report
from distdbg.evidence.recorder.calls import Call
from tests.hang_cases import SCRIPT, T, c10d, evidence, made, roots, sleeps

MEMBERS = {0: {"3": (0, 1), "1": (0, 2)}, 1: {"3": (0, 1), "2": (1, 3)}, 2: {"4": (2, 3), "1": (0, 2)},
           3: {"4": (2, 3), "2": (1, 3)}}  # fmt: skip


def calls_first(group, line, number=1):
    """The host is in its first call of a collective of the group."""
    call = Call(int((T - 12) * 1e9), "all_reduce", SCRIPT, line, "<module>", None, number, 8, "float32", group)
    return made(c10d("all_reduce", line), calls=(call,))


def test_crossed_first_calls_are_a_deadlock_with_groups_and_lines():
    """A mesh of 2 x 2: no two ranks share two groups, and the circle has four ranks."""
    ranks = {0: calls_first("3", 11), 1: calls_first("2", 13), 2: calls_first("1", 13), 3: calls_first("4", 11)}
    report = build_report(evidence(ranks, members=MEMBERS))
    assert roots(report) == [("group-deadlock", (0, 1, 2, 3))]
    (finding,) = [f for f in report.findings if f.id == "group-deadlock"]
    assert finding.confidence == "certain"
    for group in ("3 of ranks 0-1", "2 of ranks 1,3", "1 of ranks 0,2", "4 of ranks 2-3"):
        assert f"group {group}" in finding.summary
    assert "train.py:11" in finding.cause and "train.py:13" in finding.cause


def test_member_that_sleeps_before_the_first_call_is_the_culprit():
    ranks = {0: calls_first("3", 11), 1: sleeps(log=False), 2: calls_first("4", 11), 3: calls_first("4", 11)}
    report = build_report(evidence(ranks, members=MEMBERS))
    assert roots(report) == [("stuck-in-python", (1,))]
