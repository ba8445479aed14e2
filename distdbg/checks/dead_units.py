"""Units that have had no gradient in any sample of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distdbg.checks._gradients import Seen, each_series, finding, together
from distdbg.evidence.gradients import GradientSeries
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding, FindingDoc

DOCS = (
    FindingDoc(
        id="dead-units",
        severity="warning",
        title="a third of a layer's units or more learn nothing",
        meaning="A unit whose ReLU is off for every input passes no gradient back, and so can never come on again: the "
        "layer is smaller than it was meant to be, and costs as much.",
        how_seen="With `--watch gradients`: of a linear or convolutional layer with 64 units or more, at least 30 % "
        "have had a gradient of exactly zero in all samples (at least eight), and so has what reads them. A layer "
        "without any may be unused or cut off by intent, and is none; what no later layer reads (classes, boxes, "
        "actions) is not looked at.",
        remedy="Lower the learning rate or the bias that pushed them below zero; use GELU, SiLU or LeakyReLU; "
        "normalise before the activation. In half precision without a scaler they may be too small to be held.",
        source="https://arxiv.org/abs/1903.06733",
    ),
)
_FEWEST, _SHARE = 8, 0.3
_FEWEST_ROWS = 64
_MOST_NAMED = 5


def check(evidence: RunEvidence) -> Iterator[Finding]:
    """The layers of an optimizer are one finding."""
    found = []
    for rank, series in each_series(evidence, _FEWEST):
        layers = _with_dead(series)
        if layers:
            found.append((f"{series.optimizer} {sorted(layers)}", (rank, series, series.samples[-1])))
    for same in together(found):
        yield _finding(evidence, same, _with_dead(same[0][1]))


def _with_dead(series: GradientSeries) -> dict[int, int]:
    """Layer -> units that are dead."""
    last = series.samples[-1]
    if last.samples < _FEWEST:
        return {}
    found = {}
    for layer, dead in last.dead.items():
        rows = series.rows.get(layer, 0)
        if rows >= _FEWEST_ROWS and _SHARE * rows <= dead < rows:
            found[layer] = dead
    return found


def _finding(evidence: RunEvidence, seen: Sequence[Seen], layers: dict[int, int]) -> Finding:
    _, series, sample = seen[0]
    worst = sorted(layers, key=lambda n: (-layers[n] / series.rows[n], n))
    named = [f"{layers[n]} of {series.rows[n]} units of {series.layers[n] or 'the model'}" for n in worst]
    more = f" and {len(named) - _MOST_NAMED} more layers" if len(named) > _MOST_NAMED else ""
    return finding(
        evidence, DOCS[0], seen,
        f"{named[0]} have had no gradient in any of {sample.samples} samples up to step {sample.step}",
        f"Their gradients were exactly zero: {', '.join(named[:_MOST_NAMED])}{more}.",
        sure=sample.samples >= 2 * _FEWEST,
    )  # fmt: skip
