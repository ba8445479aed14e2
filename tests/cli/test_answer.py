"""The exit code of a command that judges says what it found, and what it could not find out."""

from __future__ import annotations

import pytest

from distdbg.cli.answer import exit_code
from distdbg.evidence.rank_set import RankSet
from distdbg.model import Finding, Report

ERROR = Finding("rank-killed", "error", "certain", "rank 1 was killed")
WARNING = Finding("straggler", "warning", "likely", "rank 1 is late")


@pytest.mark.parametrize(
    ("outcome", "findings", "code"),
    [
        ("failed", (ERROR,), 10),
        ("unknown", (ERROR,), 10),
        ("failed", (WARNING,), 11),
        ("hung", (), 11),
        ("succeeded", (WARNING,), 0),
        ("cancelled", (), 0),
        ("unknown", (), 0),
        (None, (), 0),
    ],
)
def test_a_job_that_failed_for_no_known_reason_is_no_success(outcome, findings, code):
    assert exit_code(Report(outcome, findings)) == code
    assert exit_code(Report(None, ()), Report(outcome, findings)) == code


def test_an_empty_set_of_ranks_has_words():
    assert RankSet(0).words() == "no known rank"
