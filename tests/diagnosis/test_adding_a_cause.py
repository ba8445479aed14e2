"""A cause is added as CONTRIBUTING.md says: an entry of the catalogue, a rule in a family's folder, and evidence."""

import sys

import pytest

import distdbg.diagnosis
from distdbg.diagnosis import slow as family
from distdbg.diagnosis.catalogue import documented
from distdbg.diagnosis.rules import rules_of
from distdbg.diagnosis.verdict import build_report
from distdbg.diagnosis.why import trace
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.findings import catalogue
from distdbg.findings import slow as entries
from distdbg.model import FindingDoc
from tests.hang_cases import evidence as hung
from tests.hang_cases import sleeps, waits

ENTRY = FindingDoc("rank-asleep", "warning", "a rank sleeps", "It sleeps.", "By its step.", "Wake it up.")
RULE = '''
from collections.abc import Iterator

from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.rules import rule
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding

#: Steps: a rank that has made fewer has not begun to train.
_FEWEST_STEPS = 1


@rule("rank-asleep", needs=("dump", "rank.phases"), explains=("stuck-in-python",))
def rank_asleep(run: RunEvidence) -> Iterator[Finding]:
    """A rank made no step."""
    for rank in run.ranks:
        if (rank.step or 0) < _FEWEST_STEPS:
            yield build_finding("rank-asleep", (rank.rank,), f"rank {rank.rank} sleeps")
'''


@pytest.fixture
def added(tmp_path, monkeypatch):
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "asleep.py").write_text(RULE)
    monkeypatch.setattr(distdbg.diagnosis, "__path__", [*distdbg.diagnosis.__path__, str(tmp_path)])
    monkeypatch.setattr(family, "__path__", [*family.__path__, str(tmp_path / "slow")])
    monkeypatch.setattr(entries, "ENTRIES", (*entries.ENTRIES, ENTRY))
    catalogue.cache_clear()
    rules_of.cache_clear()
    yield
    catalogue.cache_clear()
    rules_of.cache_clear()
    del sys.modules["distdbg.diagnosis.slow.asleep"]


def test_what_another_rule_finds_for_the_same_rank_is_explained_by_it(added):
    found = {finding.id: finding for finding in build_report(hung({0: waits(9), 1: sleeps()})).findings}
    assert found["stuck-in-python"].explained_by == "rank-asleep"
    assert next(iter(found)) == "rank-asleep"


def test_the_new_cause_is_found_documented_and_traced(added):
    ranks = tuple(RankRecord(n, n, 0, "here", step=step, phases={"step": 1000}) for n, step in enumerate((5, None)))
    evidence = RunEvidence({}, 1, ranks, ())
    found = [finding for finding in build_report(evidence).findings if finding.id == "rank-asleep"]
    assert [(finding.ranks, finding.remedy) for finding in found] == [((1,), "Wake it up.")]
    assert documented()["rank-asleep"].title == "a rank sleeps"
    (traced,) = [one for one in trace(evidence).rules if one.rule.name == "rank_asleep"]
    assert traced.rule.family == "slow" and traced.fired and ("rank.step", 1) in traced.read
