"""Read gradient norms by layer, as `--watch gradients` records them: one series for each optimizer of a rank.

    facts.jsonl      {"kind": "gradient-layers", "optimizer": 0, "table": 0, "layers": […], "kinds": […], "rows": {…}}
    gradients.jsonl  {"op": "gradients", "step": 11, "optimizer": 0, "table": 0, "total": …, "gradient": […],
                      "weight": […], "zeros": […], "dead": {layer: rows}, "samples": 2}

Arrays have an entry a layer: norms, null where there was no gradient or it was not finite; `zeros` is a share. `dead`
counts, by the layer's number, the rows of its weight whose gradient was exactly 0 in all `samples`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distdbg.evidence.jsonl import finite, integer, number, text

Events = Sequence[tuple[int, Mapping[str, Any]]]
_MOST_LAYERS = 100_000


@dataclass(frozen=True)
class GradientNorms:
    """Norms by layer, None where there was none; `line` is that of gradients.jsonl (1-based, 0 not known)."""

    step: int
    total: float | None
    gradient: tuple[float | None, ...]
    weight: tuple[float | None, ...]
    dead: Mapping[int, int] = field(default_factory=dict)
    samples: int = 0
    line: int = 0


@dataclass(frozen=True)
class GradientSeries:
    """One optimizer's layers, in the model's order, and its samples. `rows` are a layer's units, where they count.

    `copies` is the number of ranks that hold the same gradients. With `sharded` the norms are of this rank's parts.
    """

    layers: tuple[str, ...]
    kinds: tuple[str, ...]
    samples: tuple[GradientNorms, ...]
    rows: Mapping[int, int] = field(default_factory=dict)
    optimizer: str = "optimizer"
    copies: int = 1
    sharded: bool = False
    path: str = ""


def gradient_series(facts: Events, lines: Events, folder: str) -> tuple[GradientSeries, ...]:
    """What is of the wrong kind or length is left out."""
    found = []
    for _, fact in facts:
        if fact.get("kind") == "gradient-layers" and (layers := _words(fact.get("layers"))):
            which = integer(fact, "optimizer"), integer(fact, "table")
            own = [(n, line) for n, line in lines if (integer(line, "optimizer"), integer(line, "table")) == which]
            samples = [sample for n, line in own if (sample := _sample(n, line, len(layers))) is not None]
            kinds = _words(fact.get("kinds"))
            found.append(GradientSeries(
                layers, kinds if len(kinds) == len(layers) else ("",) * len(layers), tuple(samples),
                dict(_counts(fact.get("rows"), len(layers))), text(fact, "of") or "optimizer",
                integer(fact, "copies") or 1, fact.get("sharded") is True, f"{folder}/gradients.jsonl",
            ))  # fmt: skip
    return tuple(found)


def _sample(number_of_line: int, line: Mapping[str, Any], layers: int) -> GradientNorms | None:
    step, gradient, weight = integer(line, "step"), line.get("gradient"), line.get("weight")
    if step is None or not isinstance(gradient, list) or not isinstance(weight, list):
        return None
    if len(gradient) != layers or len(weight) != layers:
        return None
    return GradientNorms(
        step, number(line, "total"), tuple(map(_figure, gradient)), tuple(map(_figure, weight)),
        dict(_counts(line.get("dead"), layers)), integer(line, "samples") or 0, number_of_line,
    )  # fmt: skip


def _figure(value: object) -> float | None:
    """Infinite norms and those that are not a number are what a reader looks for."""
    return value if isinstance(value, float) else finite(value)


def _words(value: object) -> tuple[str, ...]:
    return tuple(map(str, value[:_MOST_LAYERS])) if isinstance(value, list) else ()


def _counts(value: object, layers: int) -> Iterable[tuple[int, int]]:
    for name, count in value.items() if isinstance(value, dict) else ():
        is_number = isinstance(name, str) and name.isascii() and name.isdigit() and len(name) < 8
        if is_number and int(name) < layers and isinstance(count, int):
            yield int(name), count
