"""Detect a layer with two learning rates, or another layer's, where rates rise or fall from layer to layer.

torch refuses a parameter in two groups, but not a pattern like `layers.1` that also matches `layers.10`. Only where
the intention is visible: nearly all layers of a list have one rate each, and those rates rise, or fall, without a
break. Parts that have one rate in every layer are left out: biases and norms, or cross-attention in some layers.
"""

from __future__ import annotations

from typing import Any

from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.models import inner_of, is_fsdp1, plain_name
from distdbg.worker.user_code import users_line

Rates = dict[int, set[float]]

#: A shorter list of layers shows no rule.
_FEWEST = 4
_MOST_SHOWN = 5
_MOST_OPTIMIZERS = 8


class LayerRatesMixed(Guard):
    id = "layer-rates-mixed"
    modes = ("off", "warn", "error")
    most_windows = 1
    costs = "a walk over all parameters at the second step, where there are more than two rates: about 1 ms for 1,000"
    blind = "models without DDP or FSDP2, or with fewer than four layers; rates that are no groups of one optimizer"

    def begin(self) -> None:
        self._seen: set[int] = set()

    def window(self) -> None:
        self.listen_in_window(optimizer=self._steps)

    def _steps(self, optimizer: Any) -> None:
        model = self.context.model()
        if id(optimizer) in self._seen or len(self._seen) >= _MOST_OPTIMIZERS or model is None or is_fsdp1(model):
            return
        self._seen.add(id(optimizer))
        rates = _rates(optimizer)
        if len(set(rates.values())) < _FEWEST - 1:
            return
        names = {id(p): plain_name(name) for name, p in inner_of(model).named_parameters()}
        for name, layers in _lists(names, rates).items():
            odd = _odd_ones(layers)
            if odd:
                shown = [[f"{name}.{number}", sorted(layers[number])] for number in odd[:_MOST_SHOWN]]
                self.report(users_line(), "a layer has two rates, or another layer's", (id(optimizer), name),
                         layers=shown, count=len(odd), of=len(layers))  # fmt: skip


def _rates(optimizer: Any) -> dict[int, float]:
    """The initial rates, before a schedule moved. A tensor may be on a device, and is not read."""
    found: dict[int, float] = {}
    for group in optimizer.param_groups:
        rate = group.get("initial_lr", group.get("lr"))
        if isinstance(rate, (int, float)):
            found.update((id(p), float(rate)) for p in group["params"])
    return found


def _lists(names: dict[int, str], rates: dict[int, float]) -> dict[str, Rates]:
    """The first list of layers in each name: `blocks` -> {0: {1e-4}, 1: {2e-4}}. Parts of one rate are left out."""
    parts: dict[tuple[str, str], dict[int, float]] = {}
    for key, name in names.items():
        words = name.split(".")
        place = next((n for n, word in enumerate(words) if n and word.isdigit()), None)
        if place is not None and key in rates:
            part = ".".join(words[:place]), ".".join(words[place + 1 :])
            parts.setdefault(part, {})[int(words[place])] = rates[key]
    found: dict[str, Rates] = {}
    for (before, _), layers in parts.items():
        if len(layers) < 2 or len(set(layers.values())) > 1:
            for number, rate in layers.items():
                found.setdefault(before, {}).setdefault(number, set()).add(rate)
    return found


def _odd_ones(layers: Rates) -> list[int]:
    """Layers that break a rule which at least three quarters of the list follow."""
    order = sorted(layers)
    single = [n for n in order if len(layers[n]) == 1]
    if len(single) < _FEWEST:
        return []
    keep = max(_longest(single, layers, 1), _longest(single, layers, -1), key=len)
    strict = {next(iter(layers[n])) for n in keep}
    odd = [n for n in order if n not in keep]
    enough = len(strict) == len(keep) >= _FEWEST and 4 * len(keep) >= 3 * len(order)
    return odd if enough else []


def _longest(order: list[int], layers: Rates, direction: int) -> list[int]:
    """The longest part of the list whose rates only rise, or fall. Quadratic: a list of layers is short."""
    rate = {n: direction * next(iter(layers[n])) for n in order}
    best: list[list[int]] = []
    for n in order:
        before = max((chain for chain in best if rate[chain[-1]] < rate[n]), key=len, default=[])
        best.append([*before, n])
    return max(best, key=len)
