"""Find the samplers that a loader was given."""

from __future__ import annotations

import ast
from typing import Protocol

from distdbg.lint.script.script import argument

#: attributes of a loader that are its sampler, and the place of each among the constructor's arguments
SAMPLERS = {"sampler": 3, "batch_sampler": 4}


class _Values(Protocol):
    def sites(self, node: ast.AST, kind: str = "") -> set[ast.Call]: ...

    def kind(self, call: ast.Call) -> str: ...


def samplers_given(loader: ast.Call) -> list[ast.expr]:
    """The arguments of a loader's constructor that are its sampler or its batch sampler."""
    given = (argument(loader, place, name) for name, place in SAMPLERS.items())
    return [one for one in given if one is not None]


def samplers_of(values: _Values, owner: ast.expr) -> list[ast.expr]:
    """What `owner.sampler` may be: of a loader its argument; of a batch sampler the sampler that it stands for."""
    found: list[ast.expr] = []
    for site in values.sites(owner):
        if values.kind(site) == "loader":
            found += samplers_given(site)
        elif values.kind(site) == "sampler":
            found.append(site)
    return found
