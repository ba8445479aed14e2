"""Detect gradients that explode, vanish, or never reach some units, from the series of `--watch gradients`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from typing import TypeVar

from distdbg.diagnosis.failures.findings import who
from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.rules import rule
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.training.gradients import GradientNorms, GradientSeries
from distdbg.model import Citation, Finding

# -- exploding gradients --
#: Samples at the start and at the end that are compared. The very first sample is left out: it is often an outlier.
_START_SAMPLES, _END_SAMPLES = 10, 5
_EXPLODING_SAMPLES = 1 + _START_SAMPLES + _END_SAMPLES
#: Growth of a layer's gradient norm (ratio to its start). A gradient that begins small may well grow tenfold.
_LAYER_GROWTH = 100.0
#: Growth of the norm of all gradients that must come with it: one layer alone may grow while another shrinks.
_TOTAL_GROWTH = 10.0
#: Growth of the norm of all gradients that is enough by itself.
_TOTAL_GROWTH_ALONE = 10_000.0
#: Ratio of a layer's gradient norm to its weights' norm. A smaller gradient hardly moves the weights, and one that was
#: zero at the start has to grow.
_FELT = 0.01

# -- vanishing gradients --
#: Samples of a series: in fewer, a warm-up looks the same.
_VANISHING_SAMPLES = 8
#: Layers of a model: in fewer, a gradient has no way on which it could vanish.
_FEWEST_LAYERS = 4
#: Ratio of a layer's gradient norm to the median of the last layers, and to its own weights' norm: float32 rounds an
#: update away that is below 1e-7 of the weight.
_OF_LAST, _OF_WEIGHT = 1e-4, 1e-7
#: Modules that scale or look up are not layers that a signal passes through.
_NO_LAYERS = ("Norm", "Embedding", "parameter")

# -- dead units --
#: Samples in which a unit had no gradient: in fewer, its inputs may have been rare. With twice as many it is certain.
_DEAD_SAMPLES = 8
#: Share of a layer's units: some dead units are normal with ReLU.
_DEAD_SHARE = 0.3
#: Units of a layer: in a smaller layer, a share says little.
_FEWEST_UNITS = 64
#: Layers that a finding lists.
_MOST_NAMED = 5

#: A sample that shows a symptom, with its series and its rank.
_Seen = tuple[int, GradientSeries, GradientNorms]
_T = TypeVar("_T")


def _groups(
    evidence: RunEvidence, fewest: int, judge: Callable[[GradientSeries], tuple[str, GradientNorms, _T] | None]
) -> Iterable[tuple[list[_Seen], _T]]:
    """What `judge` finds in series of at least so many samples: (what has it, the sample that shows it, a value).

    All ranks in which the same of one optimizer has it are together, with the first one's value.
    """
    found: dict[str, tuple[list[_Seen], _T]] = {}
    for rank in evidence.ranks:
        for series in rank.gradients:
            judged = judge(series) if len(series.samples) >= fewest else None
            if judged is not None:
                what, sample, value = judged
                group, _ = found.setdefault(f"{series.optimizer} {what}", ([], value))
                group.append((rank.rank, series, sample))
    return found.values()


def _finding(
    evidence: RunEvidence, finding_id: str, seen: Sequence[_Seen], summary: str, cause: str,
    *, sure: bool = False,
) -> Finding:  # fmt: skip
    """A finding about a training that runs: it explains no failure and changes no exit code."""
    _, series, sample = seen[0]
    everybody = series.copies > 1 and series.copies == len(evidence.ranks)
    ranks = tuple(r.rank for r in evidence.ranks) if everybody else tuple(sorted({rank for rank, _, _ in seen}))
    if series.sharded:
        cause += " The figures are those of the shards that these ranks hold."
    elif everybody:
        cause += f" All ranks have the same gradients; rank {seen[0][0]} recorded them."
    return build_finding(
        finding_id,
        ranks,
        f"{summary} ({who(evidence, ranks)})",
        cause,
        confidence="certain" if sure else "likely",
        step=sample.step,
        evidence=(Citation(s.path, at.line or None, f"step {at.step}") for _, s, at in seen[:3]),
    )


@rule("exploding-gradient", needs=("rank.gradients",))
def exploding_gradient(evidence: RunEvidence) -> Iterator[Finding]:
    """The layer whose gradient grew most: one finding for all ranks that have it."""
    for seen, (layer, ratio) in _groups(evidence, _EXPLODING_SAMPLES, _grown):
        yield _exploding(evidence, seen, layer, ratio)


def _grown(series: GradientSeries) -> tuple[str, GradientNorms, tuple[int, float]] | None:
    """(layer's name, the sample from which it stays above the threshold, (layer, growth))."""
    # The last samples of a run that ends in NaN have no norms: the samples before them count as the last.
    samples = [s for s in series.samples if s.total is not None]
    if len(samples) < _EXPLODING_SAMPLES:
        return None
    first, last = samples[1 : 1 + _START_SAMPLES], samples[-_END_SAMPLES:]
    start = median(s.total for s in first if s.total is not None)
    whole = min(s.total for s in last if s.total is not None) / start if start > 0 else 0.0
    if whole < _TOTAL_GROWTH:
        return None
    ratios = {n: ratio for n in range(len(series.layers)) if (ratio := _ratio(first, last, n)) is not None}
    ratios = {n: r for n, r in ratios.items() if r >= _LAYER_GROWTH or whole >= _TOTAL_GROWTH_ALONE}
    if not ratios:
        return None
    layer = max(ratios, key=lambda n: ratios[n])
    return series.layers[layer], _since(samples, layer, first), (layer, ratios[layer])


def _ratio(first: Sequence[GradientNorms], last: Sequence[GradientNorms], layer: int) -> float | None:
    """The lowest of the last norms, as a ratio to the median of the first; None if unknown or too small to matter."""
    begun = [value for s in first if (value := s.gradient[layer]) is not None]
    ended = [value for s in last if (value := s.gradient[layer]) is not None]
    weights = [value for s in last if (value := s.weight[layer]) is not None]
    if len(begun) < _START_SAMPLES or len(ended) < _END_SAMPLES or len(weights) < _END_SAMPLES:
        return None
    start = median(begun)
    if not start:
        return None
    if any(g < _FELT * w for g, w in zip(ended, weights, strict=True)):
        return None
    return min(ended) / start


def _since(samples: Sequence[GradientNorms], layer: int, first: Sequence[GradientNorms]) -> GradientNorms:
    """The first sample from which the layer stays above the threshold up to the end."""
    start = median(s.gradient[layer] or 0.0 for s in first)
    found = samples[-1]
    for sample in reversed(samples):
        if (sample.gradient[layer] or 0.0) < _LAYER_GROWTH * start:
            break
        found = sample
    return found


def _exploding(evidence: RunEvidence, seen: Sequence[_Seen], layer: int, ratio: float) -> Finding:
    _, series, since = seen[0]
    name, last = series.layers[layer] or "the model's own", series.samples[-1]
    known = [s for s in series.samples if s.gradient[layer] is not None]
    start = median(s.gradient[layer] or 0.0 for s in known[1 : 1 + _START_SAMPLES])
    cause = (
        f"The norm of {name} was {start:.3g} at first (median of steps {known[1].step} to "
        f"{known[_START_SAMPLES].step}) and {known[-1].gradient[layer]:.3g} at step {known[-1].step}, where that of "
        f"its weights was {known[-1].weight[layer] or 0.0:.3g}."
    )
    if last.total is None:
        cause += f" At step {last.step} the gradients were no longer finite."
    return _finding(
        evidence, "exploding-gradient", seen,
        f"the gradient of {name} has grown to {ratio:,.0f} times its start, and stays large from step {since.step} on",
        cause, sure=ratio >= 10 * _LAYER_GROWTH,
    )  # fmt: skip


@rule("vanishing-gradient", needs=("rank.gradients",))
def vanishing_gradient(evidence: RunEvidence) -> Iterator[Finding]:
    """Almost no gradient reaches the first layers, while the last layers get a normal one."""
    for seen, layers in _groups(evidence, _VANISHING_SAMPLES, _vanished):
        yield _vanishing(evidence, seen, layers)


def _vanished(series: GradientSeries) -> tuple[str, GradientNorms, list[int]] | None:
    """The first layers whose gradient has vanished in every sample, if the very first layer's has."""
    steady = [n for n in range(len(series.layers)) if _is_layer(series, n)]
    if len(steady) < _FEWEST_LAYERS:
        return None
    last = steady[-max(1, len(steady) // 4) :]
    found = []
    for layer in steady[: -len(last)]:
        if not all(_is_lost(sample, layer, last) for sample in series.samples):
            break
        found.append(layer)
    # Gradients that are exactly zero in all samples may be cut off by intent.
    if not any(all(s.gradient[n] for s in series.samples) for n in found):
        return None
    return str(found), series.samples[-1], found


def _is_layer(series: GradientSeries, layer: int) -> bool:
    """It had a gradient in each sample, and a signal passes through it."""
    if any(word in series.kinds[layer] for word in _NO_LAYERS) or not series.kinds[layer]:
        return False
    return all(s.gradient[layer] is not None and s.weight[layer] for s in series.samples)


def _is_lost(sample: GradientNorms, layer: int, last: Sequence[int]) -> bool:
    gradient, weight = sample.gradient[layer] or 0.0, sample.weight[layer] or 0.0
    far = median(sample.gradient[n] or 0.0 for n in last)
    return far > 0 and gradient <= _OF_LAST * far and gradient < _OF_WEIGHT * weight


def _vanishing(evidence: RunEvidence, seen: Sequence[_Seen], layers: list[int]) -> Finding:
    _, series, sample = seen[0]
    names = [series.layers[n] for n in layers]
    which = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]} ({len(names)} layers)"
    end = next(n for n in reversed(range(len(series.layers))) if _is_layer(series, n))
    first = layers[0]
    return _finding(
        evidence, "vanishing-gradient", seen,
        f"almost no gradient reaches {which}, from the first step to step {sample.step}",
        f"At step {sample.step} the norm was {sample.gradient[first] or 0.0:.3g} in {names[0]} (its weights: "
        f"{sample.weight[first] or 0.0:.3g}) and {sample.gradient[end] or 0.0:.3g} in {series.layers[end]}. "
        f"All {len(series.samples)} samples show it.",
        sure=True,
    )  # fmt: skip


@rule("dead-units", needs=("rank.gradients",))
def dead_units(evidence: RunEvidence) -> Iterator[Finding]:
    """One finding for all layers of an optimizer."""
    for seen, layers in _groups(evidence, _DEAD_SAMPLES, _with_dead):
        yield _dead(evidence, seen, layers)


def _with_dead(series: GradientSeries) -> tuple[str, GradientNorms, dict[int, int]] | None:
    """Layers with many dead units, and how many."""
    last = series.samples[-1]
    if last.samples < _DEAD_SAMPLES:
        return None
    found = {}
    for layer, dead in last.dead.items():
        rows = series.rows.get(layer, 0)
        if rows >= _FEWEST_UNITS and _DEAD_SHARE * rows <= dead < rows:
            found[layer] = dead
    return (str(sorted(found)), last, found) if found else None


def _dead(evidence: RunEvidence, seen: Sequence[_Seen], layers: dict[int, int]) -> Finding:
    _, series, sample = seen[0]
    worst = sorted(layers, key=lambda n: (-layers[n] / series.rows[n], n))
    named = [f"{layers[n]} of {series.rows[n]} units of {series.layers[n] or 'the model'}" for n in worst]
    more = f" and {len(named) - _MOST_NAMED} more layers" if len(named) > _MOST_NAMED else ""
    return _finding(
        evidence, "dead-units", seen,
        f"{named[0]} have had no gradient in any of {sample.samples} samples up to step {sample.step}",
        f"Their gradients were exactly zero: {', '.join(named[:_MOST_NAMED])}{more}.",
        sure=sample.samples >= 2 * _DEAD_SAMPLES,
    )  # fmt: skip
