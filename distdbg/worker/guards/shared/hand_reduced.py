"""Observe whether a script all-reduces the gradients of its parameters by itself, and find those that must stay equal.

Parameters must stay equal on all ranks of a group if they were equal before the first step and their gradients are
all-reduced over the group in each step. So must the other trained parameters of the same modules (the bias beside a
weight), but only if gradients are all that the ranks exchange: a tensor-parallel layer, whose ranks hold different
shards, exchanges activations, and local training exchanges weights or nothing.
"""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType
from typing import Any

from distdbg.worker.guards.shared.norms import is_measured
from distdbg.worker.models import parameters_of, weak_or_gone

MAX_PARAMETERS = 2000
#: Steps that are observed at least, and the share of them in which a gradient must be reduced.
_MIN_STEPS, _MIN_REDUCED_SHARE = 5, 0.9
#: Numbers of parameters on a CPU whose norms take 10 ms: more are not measured.
_MAX_NUMBERS_ON_CPU = 50_000_000
#: Times a step in which gradients are looked for among all parameters.
_MAX_SEARCHES = 4


class HandReduced:
    """The parameters of one optimizer, by their number in it."""

    def __init__(self, optimizer: Any) -> None:
        self.of = weak_or_gone(optimizer)
        self.ranks: list[int] = []
        self.steps = 0
        self._reduced: Counter[int] = Counter()
        self._groups: set[tuple[int, ...]] = set()
        self._exchanges_other_data = False
        #: id of each gradient -> the number of its parameter; of one step
        self._gradients: dict[int, int] = {}
        self._searches = 0
        self._shapes = {one.shape for one in self.parameters()}

    def is_cheap(self) -> bool:
        """Whether a pass over the parameters takes no noticeable time."""
        numbers: int = sum(one.numel() for one in self.parameters() if one.device.type == "cpu")
        return numbers <= _MAX_NUMBERS_ON_CPU

    def parameters(self) -> list[Any]:
        """Empty if the optimizer is gone, or has parameters that torch shards (DTensor)."""
        optimizer = self.of()
        found = list(parameters_of(optimizer))[:MAX_PARAMETERS] if optimizer is not None else []
        return [] if any(hasattr(one, "_local_tensor") or not is_measured(one) for one in found) else found

    def begin_step(self) -> None:
        self.steps += 1
        self._gradients, self._searches = {}, 0

    def called(self, frame: FrameType) -> None:
        """A function of torch.distributed is about to communicate."""
        name = frame.f_code.co_name
        if name.endswith("barrier"):
            return
        variables = frame.f_locals
        tensor = variables.get("tensor")
        number = self._number_of(tensor) if name == "all_reduce" else None
        if number is not None:
            self._reduced[number] += 1
            self._groups.add(_ranks_of(variables.get("group")))
        elif name != "all_reduce" or getattr(tensor, "numel", int)() != 1:  # one number is a loss or a metric
            self._exchanges_other_data = True

    def must_agree(self) -> tuple[list[str], list[int], list[str]]:
        """Return the names and numbers of the parameters that must stay equal, and the names of those of them whose
        gradients are not reduced. Empty lists if nothing shows that any must."""
        parameters = self.parameters()
        least = _MIN_REDUCED_SHARE * (self.steps - 1)  # the gradients of the first step came before it
        reduced = {n for n, times in self._reduced.items() if times >= least and n < len(parameters)}
        if not reduced or self.steps < _MIN_STEPS or len(self._groups) != 1:
            return [], [], []
        (ranks,) = self._groups
        self.ranks = list(ranks)
        names = _names_of(self.of(), parameters)
        owners = {names[n].rpartition(".")[0] for n in reduced if n in names}
        beside = [
            n for n, one in enumerate(parameters)
            if n not in reduced and n in names and names[n].rpartition(".")[0] in owners and one.grad is not None
        ]  # fmt: skip
        left_out = [] if self._exchanges_other_data else beside
        numbers = sorted({*reduced, *left_out})
        return [names.get(n, f"parameter {n}") for n in numbers], numbers, [names[n] for n in left_out]

    def _number_of(self, tensor: Any) -> int | None:
        """The number of the parameter that has this gradient."""
        number = self._gradients.get(id(tensor))
        may_be_one = getattr(tensor, "grad_fn", tensor) is None and tensor.shape in self._shapes
        if number is None and may_be_one and self._searches < _MAX_SEARCHES:
            self._searches += 1
            self._gradients = {id(p.grad): n for n, p in enumerate(self.parameters()) if p.grad is not None}
            number = self._gradients.get(id(tensor))
        return number


def _ranks_of(group: Any) -> tuple[int, ...]:
    dist = sys.modules["torch.distributed"]
    return tuple(int(rank) for rank in dist.get_process_group_ranks(group or dist.group.WORLD))


def _names_of(optimizer: Any, parameters: list[Any]) -> dict[int, str]:
    """Number of each parameter -> its name in the module that holds all of them. Goes through all objects once."""
    from distdbg.worker.watch.search import everything, wholes

    modules, _, _ = everything()
    holders = wholes(modules, [optimizer])
    named = {id(parameter): name for name, parameter in holders[-1].named_parameters()} if holders else {}
    return {n: named[id(one)] for n, one in enumerate(parameters) if id(one) in named}
