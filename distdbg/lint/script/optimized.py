"""Tell which model is trained here: the one whose parameters an optimizer gets."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from distdbg.lint.script.given import given_by
from distdbg.lint.script.roles import THE_MODEL
from distdbg.lint.script.script import last_word
from distdbg.lint.script.values import ValueFlow


def trained(values: ValueFlow, model: ast.expr, *, by_name: bool = False) -> bool:
    """Its parameters go to an optimizer of this file; a teacher's or a loss network's do not.

    Without an optimizer that is made in this file, `by_name`: it is called as the one model of a file is.
    """
    script, optimizers = values.script, values.of_kind("optimizer")
    if by_name and not any(script.file_of(o) is script.file_of(model) for o in optimizers):
        return THE_MODEL.match(last_word(model)) is not None
    mine = values.sites(model)
    keys = {values.key(one) for one in (model, *given_by_callers(values, model))} - {None}
    owners = (owner for optimizer in optimizers for owner in _owners(values, optimizer))
    return any(values.key(owner) in keys or mine & values.sites(owner) for owner in owners)


def given_by_callers(values: ValueFlow, model: ast.expr) -> Iterator[ast.expr]:
    """What the calls of a function name the model that is a parameter of it."""
    function = values.script.function_of(model)
    if function is not None and isinstance(model, ast.Name):
        for call in values.callers.get(function, []):
            given = given_by(function, call, model.id)
            if given is not None and values.key(given) is not None:
                yield given


def _owners(values: ValueFlow, optimizer: ast.Call) -> Iterator[ast.expr]:
    """`model` of `Adam(model.parameters())`, or of `params = list(model.parameters()) + …` and `Adam(params)`."""
    parts: list[ast.expr] = [optimizer]
    for given in (*optimizer.args, *(k.value for k in optimizer.keywords)):
        parts += values.bound(given)
    for part in parts:
        for call in values.script.within(part, ast.Call):
            if isinstance(call.func, ast.Attribute) and call.func.attr in ("parameters", "named_parameters"):
                yield call.func.value
