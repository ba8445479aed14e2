"""Detect norms and biases under weight decay in an optimizer that exempts others: a pattern of names misses some.

Only where the intention is visible: one group decays nothing and has only vectors, another decays and has vectors, too.
To decay everything in one group can be intended, and so can exempting norms and no other bias. Many decay embeddings on
purpose.
"""

from __future__ import annotations

from typing import Any

from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.models import inner_of, is_fsdp1, plain_name
from distdbg.worker.user_code import users_line

_MOST_NAMES = 5
_MOST_OPTIMIZERS = 8


class DecayedNorms(Guard):
    id = "decayed-norms"
    modes = ("off", "warn", "error")
    most_windows = 1
    costs = "a walk over all parameters at the second step: about 1 ms for 1,000 of them"
    blind = (
        "optimizers that decay all or nothing: that may be intended; models without DDP or FSDP2; decay that is not in "
        "the optimizer's groups"
    )

    def begin(self) -> None:
        self._seen: set[int] = set()

    def window(self) -> None:
        self.listen_in_window(optimizer=self._steps)

    def _steps(self, optimizer: Any) -> None:
        model = self.context.model()
        if id(optimizer) in self._seen or len(self._seen) >= _MOST_OPTIMIZERS or model is None or is_fsdp1(model):
            return
        self._seen.add(id(optimizer))
        exempt, decayed = _groups(optimizer)
        spared = [p for group in exempt for p in group["params"]]
        if not decayed or not spared or not all(map(_is_vector, spared)):
            return
        names = _norms_and_biases(model)
        kinds = {names[id(p)][1] for p in spared if id(p) in names}
        known = [names[id(p)] for group in decayed for p in group["params"] if id(p) in names]
        vectors = [name for name, of_norm in known if of_norm or False in kinds]
        if vectors and kinds:
            self.report(users_line(), "norms or biases are decayed, while others are exempt", id(optimizer),
                     names=vectors[:_MOST_NAMES], count=len(vectors), exempt=len(spared))  # fmt: skip


def _groups(optimizer: Any) -> tuple[list[Any], list[Any]]:
    """Groups without decay, and groups with decay."""
    groups = [group for group in optimizer.param_groups if isinstance(group.get("weight_decay"), (int, float))]
    return [g for g in groups if g["weight_decay"] == 0], [g for g in groups if g["weight_decay"] > 0]


def _is_vector(parameter: Any) -> bool:
    return bool(parameter.requires_grad and parameter.dim() <= 1)


def _norms_and_biases(model: Any) -> dict[int, tuple[str, bool]]:
    """id of a vector -> its name, and whether it is a norm's: all that a norm has, and what is called a bias."""
    found = {}
    for path, module in inner_of(model).named_modules():
        for name, parameter in module._parameters.items():
            of_norm = "Norm" in type(module).__name__
            if parameter is not None and _is_vector(parameter) and (of_norm or name == "bias"):
                found[id(parameter)] = plain_name(f"{path}.{name}"), of_norm
    return found
