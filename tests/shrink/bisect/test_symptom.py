"""The same failure, and what only looks like it."""

from distdbg.shrink.bisect.symptom import Symptom, other_failure, symptom_of


def report(*findings):
    return {"findings": list(findings)}


def raised(what, where="train.py:5 in step", **more):
    quote = f'Traceback (most recent call last):\n  File "train.py", line 5, in step\n    run()\n{what}'
    evidence = [{"path": "x", "where": where, "quote": quote}]
    return {"id": "rank-exception", "severity": "error", "explained_by": None, "evidence": evidence, **more}


HANG = {"id": "unused-parameters", "severity": "error", "explained_by": None, "evidence": []}
SHRUNK = {"id": "model-shrunk", "severity": "warning", "explained_by": None}


def test_an_exception_is_known_by_its_class_and_line():
    symptom = symptom_of(report(SHRUNK, raised("ValueError: 4096 is too long")), 1)
    assert symptom == Symptom("rank-exception", "train.py:5 in step", "ValueError")
    assert symptom.words == "rank-exception (ValueError at train.py:5 in step)"
    assert symptom.shown_by(report(raised("ValueError: 2048 is too long\nand more")), 1)
    assert not symptom.shown_by(report(raised("TypeError: no")), 1)
    assert not symptom.shown_by(report(raised("ValueError: no", "train.py:9 in step")), 1)
    assert "TypeError" in other_failure(report(raised("TypeError: no")), 1)


def test_the_root_and_not_what_it_explains():
    assert symptom_of(report(raised("A: x", explained_by="unused-parameters"), HANG), 75) == Symptom(HANG["id"])


def test_a_finding_that_must_appear_may_be_explained_by_another():
    assert Symptom("rank-exception").shown_by(report(raised("A: x", explained_by="unused-parameters")), 1)
    assert not Symptom("rank-exception").shown_by(report(HANG), 75)


def test_without_a_report_the_exit_code_counts():
    assert symptom_of(None, 0) is None and symptom_of(report(SHRUNK), 0) is None
    assert symptom_of(None, 3) == Symptom(exit_code=3)
    assert Symptom(exit_code=3).shown_by(None, 3) and not Symptom(exit_code=3).shown_by(None, 1)
    assert (other_failure(None, 1), other_failure(None, 0)) == ("failed otherwise: exit code 1", "")
