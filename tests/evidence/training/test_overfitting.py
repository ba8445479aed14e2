"""The judgement on a loss that was read while one batch was repeated."""

import pytest

from distdbg.evidence.training.overfitting import judge, noise, reasons


def fact(*losses, lines=None, **fields):
    series = {"/x/train.py:9": losses} if lines is None else lines
    named = {line: [[n, value] for n, value in enumerate(values, 1)] for line, values in series.items()}
    return {"steps": 100, "wanted": 100, "repeated": 99, "losses": named, "rates": [0.1, 0.1], "highest_rate": 0.1,
            **fields}  # fmt: skip


def falling(start, end, count=30):
    return [start + (end - start) * min(1.0, n / 10) for n in range(count)]


@pytest.mark.parametrize(
    ("losses", "verdict", "words"),
    [
        (falling(2.3, 0.1), "learns", "from 2.3 to 0.1"),
        (falling(-1.0, -9.0), "learns", "from -1 to -9"),
        ([2.3] * 30, "fails", "did not move from 2.3"),
        (falling(2.3, 2.299), "fails", "from 2.3 to 2.299"),
        (falling(2.3, 9.0), "fails", "from 2.3 to 9"),
        (falling(2.3, 1.0, 12) + [None] * 5, "fails", "not finite from step 13"),
        (falling(2.3, 2.2), "unknown", "fell by only 4 %"),
        ([2.3] + [1.0, 3.4] * 10, "fails", "wavering by 2.4"),
        (falling(1e-5, 0.0), "unknown", "began at 1e-05 already"),
        ([2.3, 1.0], "unknown", "too seldom"),
    ],
)
def test_verdicts(losses, verdict, words):
    judged = judge(fact(*losses))
    assert (judged.verdict, words in judged.words) == (verdict, True), judged


def test_a_rate_that_still_rises_is_no_failure():
    flat = falling(2.3, 2.299)
    assert judge(fact(*flat, rates=[1e-7, 1e-5])).verdict == "unknown"
    assert judge(fact(*flat, rates=[0.0, 0.0])).verdict == "fails"
    assert judge(fact(*flat, rates=[0.1, 0.01])).verdict == "fails"


@pytest.mark.parametrize(
    ("fields", "because"),
    [
        ({"steps": 0, "repeated": 0}, "no optimizer stepped"),
        ({"repeated": 0}, "no DataLoader of torch"),
        ({"repeated": 0, "because": "a Strange loads in a way that is not known"}, "a Strange loads"),
        ({"steps": 3, "repeated": 2}, "ended by itself after 3 of 100"),
        ({"losses": {}}, "no backward began from one number"),
        ({"losses": "hostile", "repeated": "many"}, "could not be repeated"),
    ],
)
def test_without_evidence_nothing_is_judged(fields, because):
    judged = judge(fact(*falling(2.3, 0.1)) | fields)
    assert judged.verdict == "unknown"
    assert because in judged.words


def test_several_losses_must_agree():
    falls, rises = falling(2.3, 0.1), falling(1.0, 4.0)
    assert judge(fact(lines={"a.py:1": falls, "a.py:2": falls})).verdict == "learns"
    still, lost = [2.3] * 30, [*falling(1.0, 0.9), None]
    assert judge(fact(lines={"a.py:1": still, "a.py:2": still})).verdict == "fails"
    assert judge(fact(lines={"a.py:1": rises, "a.py:2": lost})).verdict == "fails"
    apart = judge(fact(lines={"/x/a.py:1": falls, "/x/a.py:2": rises}))
    assert apart.verdict == "unknown"
    assert "a.py:2: from 1 to 4" in apart.words


def test_losses_that_work_against_each_other_need_not_fall():
    """Those of a GAN: each goes up and down, and in the end where it was."""
    lines = {"gan.py:8": [1.39, *[1.2, 1.6] * 10], "gan.py:9": [0.82, *[0.7, 0.9] * 10]}
    judged = judge(fact(lines=lines))
    assert judged.verdict == "unknown" and "against each other" in judged.words
    assert judge(fact(lines=lines, highest_rate=0.0)).verdict == "fails", "dropout alone moves them"


def test_what_the_parameters_show_is_said():
    fields = fact(highest_rate=0.0, dropout=2, frozen={"count": 1, "names": ["a"]},
                  without_grad={"count": 12, "names": ["b", "c"]}, not_owned="hostile")  # fmt: skip
    assert list(reasons(fields)) == [
        "The learning rate is 0 at every step.",
        "12 parameters held by an optimizer that never got a gradient: b, c, ….",
        "1 parameter held by an optimizer and frozen (requires_grad is off): a.",
    ]
    assert noise(fields) == "2 dropout modules were on: the loss wavers."
    assert noise(fact()) == ""
