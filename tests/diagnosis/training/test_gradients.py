"""Series of gradients become findings; healthy ones that look like them get none."""

from dataclasses import replace

import pytest

from distdbg.diagnosis.rules import all_rules
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.evidence.training.gradients import GradientNorms, GradientSeries, gradient_series

OURS = ("exploding_gradient", "vanishing_gradient", "dead_units")


def series(*layers, samples=30, weight=1.0, dead=None, rows=None, **more):
    """`layers` are functions of the sample's number to a norm (None: no gradient)."""
    made = []
    for n in range(samples):
        norms = tuple(layer(n) for layer in layers)
        total = sum(v * v for v in norms if v is not None) ** 0.5
        weights = tuple(None if v is None else weight for v in norms)
        made.append(GradientNorms(1 + 10 * n, total, norms, weights, dead or {}, n + 1, n + 1))
    names = tuple(f"layers.{n}" for n in range(len(layers)))
    kinds = ("Linear",) * len(layers)
    return GradientSeries(names, kinds, tuple(made), rows or {}, "AdamW", path="ranks/00000/gradients.jsonl", **more)


def found(*ranks):
    records = tuple(RankRecord(n, n, 0, "host", gradients=tuple(filter(None, [one]))) for n, one in enumerate(ranks))
    evidence = RunEvidence({}, 1, records, ())
    return [finding for rule in all_rules() if rule.name in OURS for finding in rule.run(evidence)]


def flat(value):
    return lambda _n: value


def noisy(value):
    return lambda n: value * (0.3, 3.0, 1.0, 0.7)[n % 4]


def grows(times, since=12):
    return lambda n: 0.1 if n < since else 0.1 * times


def test_growth_that_stays_names_the_layer_the_step_and_how_much():
    (finding,) = found(series(noisy(1.0), grows(1000), copies=2), None)
    assert (finding.id, finding.severity, finding.ranks, finding.step) == ("exploding-gradient", "warning", (0, 1), 121)
    assert "layers.1" in finding.summary and "1,000 times" in finding.summary
    assert "steps 11 to 101" in finding.cause
    assert finding.evidence[0].line == 13


@pytest.mark.parametrize(
    "healthy",
    [
        series(noisy(1.0), grows(50)),
        series(noisy(1.0), lambda n: 10.0 if n == 29 else 0.1),
        series(noisy(1.0), lambda n: 50.0 if 12 <= n < 20 else 0.1),  # it came back
        series(noisy(1.0), lambda n: 1e4 if n == 0 else 1.0),  # the warm-up
        series(flat(1.0), lambda n: 1e-6 * 1.5**n),  # what began at zero, and the whole is as it was
        series(flat(1e-9), lambda n: 1e-9 * (1 if n < 12 else 1e3)),  # nobody feels that
        series(flat(1.0), lambda n: None if n < 20 else 500.0),  # was frozen
        series(grows(1000), samples=14),
    ],
    ids=["fifty", "spike", "hill", "warm-up", "from-nothing", "unfelt", "unfrozen", "short"],
)
def test_what_rises_otherwise_is_no_explosion(healthy):
    assert found(healthy) == []


def test_an_explosion_that_ended_as_nan_is_judged_by_what_came_before():
    grown = series(flat(0.1), lambda n: 0.1 * 3.0 ** max(0, n - 10), samples=27)
    nan = [replace(s, total=None, gradient=(None, None)) for s in series(flat(1), flat(1), samples=3).samples]
    (finding,) = found(replace(grown, samples=(*grown.samples, *nan)))
    assert finding.id == "exploding-gradient"


def test_shards_are_reported_by_the_ranks_that_hold_them():
    sick = series(noisy(1.0), grows(1000), sharded=True)
    (finding,) = found(sick, sick, series(noisy(1.0)))
    assert finding.ranks == (0, 1) and "shards" in finding.cause


def vanishing(first=1e-12, samples=30, **more):
    return series(*map(flat, (first, 10 * first, 1e-6, 1e-4, 1e-3, 1e-2, 0.1, 1.0)), samples=samples, **more)


def test_first_layers_without_a_gradient_are_named_in_a_row():
    (finding,) = found(vanishing(), None)
    assert (finding.id, finding.ranks) == ("vanishing-gradient", (0,))
    assert "layers.0 to layers.1 (2 layers)" in finding.summary
    assert "1e-12 in layers.0" in finding.cause and "1 in layers.7" in finding.cause


@pytest.mark.parametrize(
    "healthy",
    [
        vanishing(first=1e-6),  # small, but felt
        vanishing(weight=1e-6),
        vanishing(samples=7),
        series(*[noisy(1e-9)] * 8),  # converged: all are small
        series(flat(0.0), *[flat(1.0)] * 7),  # cut off by intent
        series(lambda n: 1e-12 if n < 29 else 1.0, *[flat(1.0)] * 7),  # it began at zero
        series(flat(None), flat(None), *[flat(1.0)] * 6),  # a frozen backbone
        series(flat(1e-12), flat(1.0), flat(1.0)),  # three layers are no depth
        replace(vanishing(), kinds=("Embedding", "LayerNorm", *["Linear"] * 6)),
    ],
    ids=["felt", "small-weights", "short", "converged", "cut", "late", "frozen", "shallow", "embedding"],
)
def test_what_is_small_otherwise_has_not_vanished(healthy):
    assert found(healthy) == []


def test_dead_units_name_the_layer_with_the_most_of_them():
    sick = series(flat(1.0), flat(1.0), dead={0: 40, 1: 100}, rows={0: 128, 1: 128}, samples=20)
    (finding,) = found(sick)
    assert (finding.id, finding.confidence, finding.step) == ("dead-units", "certain", 191)
    assert "100 of 128 units of layers.1" in finding.summary and "20 samples" in finding.summary
    assert "40 of 128 units of layers.0" in finding.cause


@pytest.mark.parametrize(
    ("dead", "rows", "samples"),
    [(38, 128, 20), (128, 128, 20), (40, 63, 20), (100, 128, 7), (100, 0, 20)],
    ids=["few", "unused", "small", "short", "not-units"],
)
def test_units_that_may_be_well_are_not_called_dead(dead, rows, samples):
    assert found(series(flat(1.0), dead={0: dead}, rows={0: rows} if rows else {}, samples=samples)) == []


def test_lines_become_series_and_what_is_foreign_is_left_out():
    table = {"kind": "gradient-layers", "optimizer": 0, "table": 0, "layers": ["a", "b"], "kinds": ["Linear"] * 2,
             "rows": {"0": 64, "9": 1, "x": 2}, "copies": 2, "of": "SGD"}  # fmt: skip
    line = {"op": "gradients", "step": 11, "optimizer": 0, "table": 0, "total": 5, "gradient": [3, 4],
            "weight": [1.0, None], "zeros": [0, 0], "dead": {"0": 30}, "samples": 2}  # fmt: skip
    bad = [{**line, "gradient": [1]}, {**line, "weight": "x"}, {**line, "step": None}, {**line, "table": 1}, {}]
    facts = [(1, {"kind": "init"}), (2, table), (3, {"kind": "gradient-layers", "layers": "x"})]
    (read,) = gradient_series(facts, [*enumerate(bad, 1), (6, line)], "ranks/00000")
    (sample,) = read.samples
    assert (read.rows, read.copies, read.optimizer) == ({0: 64}, 2, "SGD")
    assert (sample.gradient, sample.weight, sample.dead, sample.line) == ((3.0, 4.0), (1.0, None), {0: 30}, 6)
    (nan,) = gradient_series(facts, [(1, {**line, "total": None, "gradient": [None, True]})], "r")[0].samples
    assert (nan.total, nan.gradient) == (None, (None, None))
