"""Reports of `--overfit-batch` and `--watch compile` become findings, combined over ranks."""

import pytest

from distdbg.diagnosis.slow.compiled import graph_break, recompile
from distdbg.diagnosis.training.overfit import overfit
from distdbg.evidence.run import GuardFact, RankRecord, RunEvidence
from distdbg.model import Citation

LINE = ("/home/me/train.py", 12, "forward")


def run(*facts):
    ranks = [RankRecord(r, r, 0, "here", guards=tuple(f for f in facts if f.rank == r)) for r in range(3)]
    return RunEvidence({}, 1, tuple(ranks), ())


def fact(rank, guard, where=None, **fields):
    return GuardFact(rank, guard, fields, step=20, where=where, citation=Citation(f"ranks/{rank}/facts.jsonl", 1))


def repeated(rank, *losses, **fields):
    series = {"/home/me/train.py:9": [[n, loss] for n, loss in enumerate(losses, 1)]}
    own = {"steps": 20, "wanted": 20, "repeated": 19, "ended": "as asked", "losses": series, "rates": [0.1, 0.1],
            "highest_rate": 0.1}  # fmt: skip
    return fact(rank, "overfit", **(own | fields))


@pytest.mark.parametrize("rule", [overfit, graph_break, recompile], ids=lambda rule: rule.name)
def test_a_run_without_facts_has_no_finding(rule):
    assert list(rule.run(run())) == []


def test_all_ranks_learn():
    falls = (2.0, 1.0, 0.5, 0.2, 0.1, 0.1)
    (found,) = overfit.run(run(*(repeated(rank, *falls) for rank in range(3))))
    assert (found.id, found.severity, found.ranks, found.step) == ("overfit-learns", "info", (0, 1, 2), 20)
    assert "20 steps" in found.cause


def test_ranks_that_do_not_learn_are_named_apart():
    facts = [repeated(0, 2.0, 1.0, 0.5, 0.2, 0.1, 0.1), repeated(1, *[2.0] * 6), repeated(2, *[2.0] * 6)]
    failed, learnt = overfit.run(run(*facts))
    assert (failed.id, failed.severity, failed.confidence, failed.ranks) == (
        "overfit-fails",
        "error",
        "certain",
        (1, 2),
    )
    assert (learnt.id, learnt.ranks) == ("overfit-learns", (0,))


def test_a_failure_without_a_reason_is_only_likely():
    (found,) = overfit.run(run(repeated(0, 2.0, 2.1, 1.9, 2.0, 2.1, 1.95)))
    assert (found.id, found.confidence) == ("overfit-fails", "likely")


def test_a_graph_break_is_one_finding_a_line():
    fields = {"reason": "A print Explanation: Prints are effects", "hint": "Avoid it."}
    facts = [fact(r, "graph-break", LINE, count=r + 1, **fields) for r in (0, 1)]
    (found,) = graph_break.run(run(*facts))
    assert found.ranks == (0, 1) and "train.py:12 in forward: A print" in found.summary
    assert found.cause == "Prints are effects. torch's hint: Avoid it. Seen in 2 compilations."


@pytest.mark.parametrize(
    ("counts", "gave_up", "severity"),
    [((1,), False, "info"), ((1, 1), False, "info"), ((2, 1), False, "warning"), ((1,), True, "warning")],
)
def test_compiling_once_more_is_normal(counts, gave_up, severity):
    facts = [fact(0, "recompile", LINE, guard_failed=f"guard {n}", count=count, gave_up=gave_up, limit=8, of="forward")
             for n, count in enumerate(counts)]  # fmt: skip
    (found,) = recompile.run(run(*facts))
    assert found.severity == severity
    assert f"compiled again {sum(counts)} time" in found.summary
    assert ("uncompiled" in found.cause) == gave_up


@pytest.mark.parametrize(
    ("guards", "severity"),
    [
        (["size mismatch at index 0. expected 32, actual 31", "size mismatch at index 0. expected 32, actual 30",
          "size mismatch at index 0. expected 32, actual 29"], "warning"),
        (["self.depth == 0", "self.depth == 1", "self.depth == 2"], "warning"),
        (["requires_grad mismatch. expected requires_grad=0", "requires_grad mismatch. expected requires_grad=0",
          "requires_grad mismatch. expected requires_grad=1", "GLOBAL_STATE changed: grad_mode"], "info"),
    ],
    ids=["lengths", "a number of the module's", "layers compiled one by one, trained and evaluated"],
)  # fmt: skip
def test_what_is_on_or_off_comes_to_an_end(guards, severity):
    facts = [
        fact(0, "recompile", LINE, guard_failed=guard, count=guards.count(guard)) for guard in dict.fromkeys(guards)
    ]
    (found,) = recompile.run(run(*facts))
    assert (found.severity, f"again {len(guards)} times" in found.summary) == (severity, True)
