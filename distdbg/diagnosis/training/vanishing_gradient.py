"""Gradients that get lost on their way back to the first layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from distdbg.diagnosis.training._gradients import Seen, each_series, finding, together
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.training.gradients import GradientSample, GradientSeries
from distdbg.findings import entries
from distdbg.model import Finding

DOCS = entries("vanishing-gradient")
_FEWEST, _FEWEST_LAYERS = 8, 4
_OF_LAST, _OF_WEIGHT = 1e-4, 1e-7
#: What scales or looks up is no layer that a signal passes through.
_NO_LAYERS = ("Norm", "Embedding", "parameter")


def check(evidence: RunEvidence) -> Iterator[Finding]:
    found = []
    for rank, series in each_series(evidence, _FEWEST):
        layers = _vanished(series)
        if layers:
            found.append((f"{series.optimizer} {layers}", (rank, series, series.samples[-1])))
    for same in together(found):
        yield _finding(evidence, same, _vanished(same[0][1]))


def _vanished(series: GradientSeries) -> list[int]:
    """The first layers, one after another, that are so in every sample; empty where the very first is not."""
    steady = [n for n in range(len(series.layers)) if _is_layer(series, n)]
    if len(steady) < _FEWEST_LAYERS:
        return []
    last = steady[-max(1, len(steady) // 4) :]
    found = []
    for layer in steady[: -len(last)]:
        if not all(_is_lost(sample, layer, last) for sample in series.samples):
            break
        found.append(layer)
    # What is exactly zero all along may be cut off by intent: something must come through.
    if not any(all(s.gradient[n] for s in series.samples) for n in found):
        return []
    return found


def _is_layer(series: GradientSeries, layer: int) -> bool:
    """It has had a gradient in each sample, and passes a signal on."""
    if any(word in series.kinds[layer] for word in _NO_LAYERS) or not series.kinds[layer]:
        return False
    return all(s.gradient[layer] is not None and s.weight[layer] for s in series.samples)


def _is_lost(sample: GradientSample, layer: int, last: Sequence[int]) -> bool:
    gradient, weight = sample.gradient[layer] or 0.0, sample.weight[layer] or 0.0
    far = median(sample.gradient[n] or 0.0 for n in last)
    return far > 0 and gradient <= _OF_LAST * far and gradient < _OF_WEIGHT * weight


def _finding(evidence: RunEvidence, seen: Sequence[Seen], layers: list[int]) -> Finding:
    _, series, sample = seen[0]
    names = [series.layers[n] for n in layers]
    which = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]} ({len(names)} layers)"
    end = next(n for n in reversed(range(len(series.layers))) if _is_layer(series, n))
    first = layers[0]
    return finding(
        evidence, DOCS[0], seen,
        f"next to no gradient reaches {which}, from the first step on to step {sample.step}",
        f"At step {sample.step} the norm was {sample.gradient[first] or 0.0:.3g} in {names[0]} (its weights' is "
        f"{sample.weight[first] or 0.0:.3g}) and {sample.gradient[end] or 0.0:.3g} in {series.layers[end]}; it was "
        f"so in all {len(series.samples)} samples.",
        sure=True,
    )  # fmt: skip
