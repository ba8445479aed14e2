"""Exceptions in logs beside what else is known of the job."""

from dataclasses import replace

from distdbg.diagnosis.verdict import build_report
from distdbg.evidence.run import UNKNOWN_RANK, ExceptionFact, RankRecord
from tests.hang_cases import evidence, sleeps, waits
from tests.made_dump import T

PRINTED = ExceptionFact(UNKNOWN_RANK, "ConnectionError", "no such actor", "", T - 9, uncaught=True)
ACTOR = RankRecord(UNKNOWN_RANK, 0, 0, "", exceptions=(PRINTED,), from_log=True, place="pid 501")


def told(*stacks):
    made = evidence(dict(enumerate(stacks)))
    report = build_report(replace(made, unattributed=(ACTOR,)))
    return [(f.id, f.ranks, f.severity) for f in report.findings if f.id != "versions-differ"]


def test_an_exception_of_no_rank_is_not_why_living_ranks_stand_still():
    assert told(sleeps(8), waits(9)) == [("stuck-in-python", (0,), "error"), ("rank-exception", (), "info")]


def test_where_the_hang_is_not_explained_it_may_be():
    assert ("rank-exception", (), "error") in told(waits(9), waits(9))
