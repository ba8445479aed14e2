"""Gradients that grow without end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from distdbg.diagnosis.training._gradients import Seen, each_series, finding, together
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.training.gradients import GradientSample, GradientSeries
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("exploding-gradient")
_FIRST, _LAST = 10, 5
_FEWEST = 1 + _FIRST + _LAST
_LAYER, _WITH_TOTAL, _TOTAL = 100.0, 10.0, 10_000.0
#: A gradient that is less than this of its layer's weights moves nothing yet: what was zero at the start has to grow.
_FELT = 0.01


def check(evidence: RunEvidence) -> Iterator[Finding]:
    """The layer that grew most, once for all ranks that have it."""
    found = []
    for rank, series in each_series(evidence, _FEWEST):
        grown = _grown(series)
        if grown is not None:
            layer, ratio, since = grown
            found.append((f"{series.optimizer} {series.layers[layer]}", (rank, series, since), layer, ratio))
    for same in together((key, seen) for key, seen, _, _ in found):
        layer, ratio = next((layer, ratio) for _, seen, layer, ratio in found if seen == same[0])
        yield _finding(evidence, same, layer, ratio)


def _grown(series: GradientSeries) -> tuple[int, float, GradientSample] | None:
    """(layer, times its start, the sample since which it stays so)."""
    # A run that ended as NaN has no figures in its last samples: those before them are the last.
    samples = [s for s in series.samples if s.total is not None]
    if len(samples) < _FEWEST:
        return None
    first, last = samples[1 : 1 + _FIRST], samples[-_LAST:]
    start = median(s.total for s in first if s.total is not None)
    whole = min(s.total for s in last if s.total is not None) / start if start > 0 else 0.0
    if whole < _WITH_TOTAL:
        return None
    ratios = {n: ratio for n in range(len(series.layers)) if (ratio := _ratio(first, last, n)) is not None}
    ratios = {n: r for n, r in ratios.items() if r >= _LAYER or whole >= _TOTAL}
    if not ratios:
        return None
    layer = max(ratios, key=lambda n: ratios[n])
    return layer, ratios[layer], _since(samples, layer, first)


def _ratio(first: Sequence[GradientSample], last: Sequence[GradientSample], layer: int) -> float | None:
    """The lowest of its last norms by the median of its first; None where it cannot be said, or is not felt."""
    begun = [value for s in first if (value := s.gradient[layer]) is not None]
    ended = [value for s in last if (value := s.gradient[layer]) is not None]
    weights = [value for s in last if (value := s.weight[layer]) is not None]
    if len(begun) < _FIRST or len(ended) < _LAST or len(weights) < _LAST or not (start := median(begun)):
        return None
    if any(g < _FELT * w for g, w in zip(ended, weights, strict=True)):
        return None
    return min(ended) / start


def _since(samples: Sequence[GradientSample], layer: int, first: Sequence[GradientSample]) -> GradientSample:
    """The first of the samples up to the end in which it is a hundred times its start."""
    start = median(s.gradient[layer] or 0.0 for s in first)
    found = samples[-1]
    for sample in reversed(samples):
        if (sample.gradient[layer] or 0.0) < _LAYER * start:
            break
        found = sample
    return found


def _finding(evidence: RunEvidence, seen: Sequence[Seen], layer: int, ratio: float) -> Finding:
    _, series, since = seen[0]
    name, last = series.layers[layer] or "the model's own", series.samples[-1]
    known = [s for s in series.samples if s.gradient[layer] is not None]
    start = median(s.gradient[layer] or 0.0 for s in known[1 : 1 + _FIRST])
    cause = (
        f"The norm of {name} was {start:.3g} at first (median of steps {known[1].step} to {known[_FIRST].step}) and "
        f"{known[-1].gradient[layer]:.3g} at step {known[-1].step}, where its weights' norm was "
        f"{known[-1].weight[layer] or 0.0:.3g}."
    )
    if last.total is None:
        cause += f" At step {last.step} the gradients were not finite any more."
    return finding(
        evidence, DOCS[0], seen,
        f"the gradient of {name} has grown {ratio:,.0f} times since the start, and stays so from step {since.step} on",
        cause, sure=ratio >= 10 * _LAYER,
    )  # fmt: skip
