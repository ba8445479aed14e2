"""What `explain --why` says of the rules: which fired, because of which record, and what the others had read."""

import pytest

from distdbg.diagnosis.verdict import build_report
from distdbg.diagnosis.why import trace
from distdbg.model import CauseClass
from distdbg.report.text.why_text import why_text
from tests.hang_cases import evidence, sleeps, waits
from tests.made_run import MadeRun


@pytest.fixture
def raised(tmp_path):
    run = MadeRun(tmp_path)
    run.raises(2, "ValueError", "boom", t=7.0)
    run.rest(-15, t=9.0, asked=7.5)
    return run.closes()


def test_a_rule_fired_because_of_a_record_and_the_others_had_read_theirs(raised):
    found = raised.evidence()
    why, report = trace(found), build_report(found)
    fired = {one.rule.name: one for one in why.rules if one.fired}
    assert [one.findings for one in fired.values()] == [(finding,) for finding in report.findings]
    assert list(fired) == ["rank_exception"] and fired["rank_exception"].findings[0].evidence
    silent = {one.rule.name: dict(one.read) for one in why.rules if not one.fired}
    assert silent["missing_zero_grad"]["rank.guards"] == 0 and silent["data_starved"]["profiles"] == 0
    assert why.hang is None and "wait graph: none" in why_text(why, report)


def test_the_trace_changes_nothing(raised):
    found = raised.evidence()
    before = build_report(found)
    trace(found)
    assert build_report(found) == before


def test_the_wait_graph_is_shown():
    found = evidence({0: waits(9), 1: waits(9), 2: waits(9), 3: sleeps(8)})
    report = build_report(found)
    text = why_text(trace(found), report)
    assert report.findings[0].cause_class is CauseClass.STUCK
    assert "rank 3: PYTHON" in text and "end of the waits: rank 3: PYTHON" in text
    assert "ranks 0-2 for rank 3" in text and "fired   hang/stuck: stuck-in-python of rank 3" in text


def test_a_rule_that_fails_is_shown(raised, monkeypatch):
    from distdbg.diagnosis import why as module

    rule = module.all_rules()[0]
    broken = type(rule)("hang", "breaks", rule.docs, lambda _evidence: 1 / 0)
    monkeypatch.setattr(module, "all_rules", lambda: (broken,))
    (one,) = trace(raised.evidence()).rules
    assert "ZeroDivisionError" in one.failed and not one.fired
