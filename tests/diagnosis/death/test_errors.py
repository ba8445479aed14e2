"""Exceptions in logs beside what else is known of the job."""

from dataclasses import replace

import pytest

from distdbg.diagnosis.verdict import build_report
from distdbg.evidence.run import UNKNOWN_RANK, ExceptionFact, RankRecord
from tests.hang_cases import evidence, made, sleeps, waits
from tests.made_dump import T

BEFORE, AFTER = T - 9, T + 9
NOTE = ("rank-exception", (), "info")
ERROR = ("rank-exception", (), "error")


def told(ranks, raised=BEFORE, **more):
    """Findings of a dump beside an exception of a process whose rank is not known."""
    printed = ExceptionFact(UNKNOWN_RANK, "ConnectionError", "no such actor", "", raised, uncaught=True)
    actor = RankRecord(UNKNOWN_RANK, 0, 0, "", exceptions=(printed,), from_log=True, place="pid 501")
    report = build_report(replace(evidence(ranks, **more), unattributed=(actor,)))
    return [(f.id, f.ranks, f.severity) for f in report.findings if f.id != "versions-differ"]


def test_an_exception_of_no_rank_is_not_why_living_ranks_stand_still():
    assert told({0: sleeps(8), 1: waits(9)}) == [("stuck-in-python", (0,), "error"), NOTE]


@pytest.mark.parametrize(
    ("ranks", "more"),
    [
        ({0: waits(9), 1: waits(9)}, {}),
        ({0: sleeps(8), 1: waits(9)}, {"raised": AFTER}),
        ({0: sleeps(8), 1: waits(9)}, {"quiet_s": None}),
        ({0: waits(9), 1: waits(9), 2: made(state=None)}, {}),
        ({0: sleeps(8), 1: waits(9)}, {"missing": {2: "its process has ended"}}),
    ],
    ids=["not explained", "raised later", "not called hung", "a rank has ended", "a rank is missing"],
)
def test_else_it_may_be(ranks, more):
    assert ERROR in told(ranks, **more)
