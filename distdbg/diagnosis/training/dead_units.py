"""Units that have had no gradient in any sample of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distdbg.diagnosis.training._gradients import Seen, each_series, finding, together
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.training.gradients import GradientSeries
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("dead-units")
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
