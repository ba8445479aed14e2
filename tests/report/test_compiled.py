"""What was compiled, from facts of ranks: places put together, speeds and losses compared, and what is not known."""

import json

import pytest

from distdbg.evidence.run import GuardFact, RankRecord, RunEvidence
from distdbg.report.compiled import as_json, build, text


def fact(rank, guard, where=None, **fields):
    return GuardFact(rank, guard, fields, where=where)


def run(*facts):
    ranks = sorted({f.rank for f in facts})
    records = [RankRecord(r, r, 0, "here", guards=tuple(f for f in facts if f.rank == r)) for r in ranks]
    return RunEvidence({}, 1, tuple(records), ())


def summary(rank=0, step_ms=(2.0, 2.1, 2.0, 2.2, 2.1), losses=(1.0, 0.5, 0.25), graphs=3):
    series = {"/x/train.py:9": [[n, loss] for n, loss in enumerate(losses, 1)]}
    return fact(rank, "compile", compiled=graphs, functions=2, seconds=6.5, step_ms=list(step_ms), losses=series)


WHERE = ("/x/train.py", 12, "forward")


def test_the_same_place_on_two_ranks_is_one():
    found = build(run(
        *(fact(r, "graph-break", WHERE, reason="a print", count=r + 1) for r in (0, 1)),
        fact(1, "graph-break", WHERE, reason="an item", count=1),
        fact(0, "recompile", ("/x/train.py", 10, "forward"), guard_failed="n == 2", count=4),
        summary(), summary(1),
    ))  # fmt: skip
    assert [(p.where, p.why, p.count, p.ranks) for p in found.breaks] == [
        ("train.py:12 in forward", "a print", 2, (0, 1)), ("train.py:12 in forward", "an item", 1, (1,)),
    ]  # fmt: skip
    shown = text(found)
    assert "3 graphs of 2 functions compiled, 6.5 s spent compiling" in shown
    assert "train.py:12 in forward  x2  ranks 0-1\n    a print" in shown
    assert "train.py:10 in forward  x4  rank 0\n    n == 2" in shown
    assert as_json(found)["recompiles"] == [
        {"where": "train.py:10 in forward", "why": "n == 2", "count": 4, "ranks": [0]}
    ]


def test_without_breaks_that_is_said():
    shown = text(build(run(summary())))
    assert "No graph breaks." in shown
    assert "No recompilations." in shown


def test_a_script_that_compiles_nothing():
    shown = text(build(run(summary(graphs=0))))
    assert shown.startswith("Nothing was compiled")
    assert "No graph breaks" not in shown


@pytest.mark.parametrize(
    ("eager_ms", "words"),
    [
        ((4.0, 4.2, 4.1, 4.2, 4.3), "compiled is 2 times as fast"),
        ((1.0, 1.1, 1.05, 1.04, 1.06), "compiled is 2 times as slow"),
        ((2.0, 2.2, 2.1, 2.1, 2.3), "no difference in speed beyond the spread of both"),
    ],
)
def test_speed_is_compared_beyond_the_spread(eager_ms, words):
    assert words in text(build(run(summary()), run(summary(step_ms=eager_ms))))


def test_losses_are_compared_step_by_step():
    found = build(run(summary()), run(summary(losses=(1.0, 0.5005, 0.25, 0.1))))
    assert (found.difference, found.compared) == ((pytest.approx(0.000999, rel=1e-3), 2), 3)
    assert "losses of the first 3 steps: largest relative difference 0.001, at step 2" in text(found)
    assert "the same to the bit" in text(build(run(summary()), run(summary())))
    assert found.unknown == ()


NAN, INF = "nan", "inf"


@pytest.mark.parametrize(
    ("compiled", "eager", "words", "first"),
    [
        ((1.0, 0.9, NAN, NAN), (1.0, 0.9, 0.8, 0.7),
         "from step 3 on the compiled loss is NaN or infinite, the eager one is finite", (3, None)),
        ((1.0, 0.9, 0.8, 0.7), (1.0, 0.9, 0.8, "-inf"),
         "from step 4 on the eager loss is NaN or infinite, the compiled one is finite", (None, 4)),
        ((1.0, 0.9, NAN, NAN), (1.0, 0.9, INF, NAN), "from step 3 on the loss is NaN or infinite in both", (3, 3)),
        ((1.0, 0.9, NAN, NAN), (1.0, 0.9, 0.8, INF),
         "from step 3 on the compiled loss is NaN or infinite, the eager one from step 4 on", (3, 4)),
        ((1.0, 0.9, NAN, 0.7), (1.0, 0.9, 0.8, 0.7),
         "at step 3 the compiled loss is NaN or infinite, the eager one is finite", (3, None)),
    ],
)  # fmt: skip
def test_a_loss_that_is_not_finite_is_said(compiled, eager, words, first):
    found = build(run(summary(losses=compiled)), run(summary(losses=eager)))
    shown = text(found)
    assert words in shown
    assert f"losses of the first {found.compared} steps in which both are finite: the same to the bit" in shown
    losses = as_json(found)["losses"]
    assert (losses["compared"], losses["first_not_finite"]) == (
        sum(isinstance(a, float) and isinstance(b, float) for a, b in zip(compiled, eager, strict=True)),
        {"compiled": first[0], "eager": first[1]},
    )
    assert json.loads(json.dumps(as_json(found), allow_nan=False))["unknown"] == []


def test_no_finite_loss_and_no_timed_step_is_said_too():
    few = summary(step_ms=(), losses=(NAN, NAN))
    found = build(run(few), run(few))
    assert "from step 1 on the loss is NaN or infinite in both" in text(found) and "losses of" not in text(found)
    assert "whether the losses are the same" not in [u.what for u in found.unknown]
    healthy = as_json(build(run(summary()), run(summary())))["losses"]
    assert healthy["first_not_finite"] == {"compiled": None, "eager": None}
    odd = summary(losses=("a word", 0.5, 0.25))
    assert build(run(odd), run(odd)).compared == 2


def test_a_script_that_is_not_seeded_is_not_judged():
    found = build(run(summary()), run(summary(losses=(1.3, 0.6, 0.2))))
    assert "is the script seeded?" in text(found)
    assert as_json(found)["unknown"][0]["what"] == "whether the losses are the same"


def test_what_no_rank_reported_is_unknown():
    found = build(run(fact(0, "graph-break", WHERE, reason="a print")), run(summary(step_ms=(), losses=())))
    assert [u.what for u in found.unknown] == [
        "what was compiled", "step time", "step time without compilation", "whether the losses are the same",
    ]  # fmt: skip
