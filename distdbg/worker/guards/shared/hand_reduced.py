"""Observe whether a script all-reduces the gradients of its parameters by itself, and find those that must stay equal.

Parameters must stay equal on all ranks of a group if they were equal before the first step and their gradients are
all-reduced over the group in each step. So must the other trained parameters of the same modules, if gradients are all
that the ranks exchange. If they also exchange activations, a module may hold a shard beside a replicated parameter (the
weight of a row-parallel layer beside its bias), and only one case is left: the bias beside a reduced weight of a module
of torch, since each number of the bias belongs to a part of the weight.

Of a parameter whose gradient is not reduced nothing else shows that it is meant to be equal. Shards that start at zero
or one, a norm or head of each rank and a forgotten norm look alike: equal at the start, different later. And replicated
parameters that are computed alike on each rank need not agree to the last bit on GPUs.
"""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType
from typing import Any

from distdbg.worker.models import is_measured, parameters_of, weak_or_gone

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
        names, biases = _names_of(self.of(), parameters)
        reduced_names = {names[n] for n in reduced if n in names}
        owners = {name.rpartition(".")[0] for name in reduced_names}
        left_out = [
            n for n, one in enumerate(parameters)
            if n not in reduced and n in names and names[n].rpartition(".")[0] in owners and one.grad is not None
            and (not self._exchanges_other_data or biases.get(n) in reduced_names)
        ]  # fmt: skip
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


def _names_of(optimizer: Any, parameters: list[Any]) -> tuple[dict[int, str], dict[int, str]]:
    """Return the name of each parameter, by its number, in the module that holds all of them; and for each bias of a
    module of torch the name of the weight beside it. Goes through all objects once."""
    from distdbg.worker.watch.search import everything, wholes

    modules, _, _ = everything()
    holders = wholes(modules, [optimizer])
    if not holders:
        return {}, {}
    named = {id(parameter): name for name, parameter in holders[-1].named_parameters()}
    names = {n: named[id(one)] for n, one in enumerate(parameters) if id(one) in named}
    owners = dict(holders[-1].named_modules())
    biases = {}
    for n, name in names.items():
        owner, dot, last = name.rpartition(".")
        if last == "bias" and type(owners.get(owner)).__module__.startswith("torch.nn.modules."):
            biases[n] = f"{owner}{dot}weight"
    return names, biases
