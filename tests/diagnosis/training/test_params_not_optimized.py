"""How sure `params-not-optimized` is: of copies a hint, before the end likely, at the end certain."""

import pytest

from distdbg.diagnosis.training.guard_table import GUARD_RULES
from distdbg.evidence.run import GuardFact, RankRecord, RunEvidence
from distdbg.model import Citation


@pytest.mark.parametrize(
    ("fields", "severity", "confidence"),
    [
        ({"ended": True}, "warning", "certain"),
        ({"ended": False}, "warning", "likely"),
        ({"ended": True, "copied": True}, "info", "possible"),
        ({"ended": True, "none_held": True}, "info", "possible"),
    ],
)
def test_how_sure_it_is(fields, severity, confidence):
    fields = {"names": ["a"], "count": 1, "parameters": 2, **fields}
    fact = GuardFact(0, "params-not-optimized", fields, None, 6, ("train.py", 3, "train"), Citation("facts.jsonl"))
    (rule,) = (rule for rule in GUARD_RULES if rule.name == "params_not_optimized")
    (finding,) = rule.run(RunEvidence({}, 1, (RankRecord(0, 0, 0, "host", guards=(fact,)),), ()))
    assert (finding.severity, finding.confidence) == (severity, confidence)
