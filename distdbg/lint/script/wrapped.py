"""Find calls of models that DDP or FSDP wraps, in which ranks wait for each other."""

from __future__ import annotations

import ast
import re

from distdbg.lint.script.forwards import forward_of
from distdbg.lint.script.given import given_by
from distdbg.lint.script.kinds import PREPARED
from distdbg.lint.script.script import Function, argument, is_constant, names_in
from distdbg.lint.script.values import ValueFlow
from distdbg.protocol.names import MODEL_WRAPPERS

_WRAPPERS = ("fsdp", "ddp", PREPARED)
#: of what was taken out of its wrapper, or may have been
_UNWRAPS = re.compile(rf"unwrap|^(?:{'|'.join(MODEL_WRAPPERS)})$|without_ddp|(?:^|_)ema(?:_|$)", re.IGNORECASE)


def wrapper_of(values: ValueFlow, model: ast.expr) -> str:
    """`ddp`, `fsdp` or `prepared` where this is a model in that wrapper; else empty."""
    for kind in _WRAPPERS:
        sites = values.sites(model, kind)
        if sites and all(_makes_ranks_wait(values, site) for site in sites):
            return "" if _is_unwrapped(values, model) else kind
    return ""


def _makes_ranks_wait(values: ValueFlow, site: ast.Call) -> bool:
    if values.kind(site) == PREPARED:
        return True
    of_torch = values.script.call_names[site].startswith("torch.")
    return of_torch and not is_constant(argument(site, -1, "broadcast_buffers"), value=False)


def _is_unwrapped(values: ValueFlow, model: ast.expr) -> bool:
    """`model.module`, or a variable that is assigned it."""
    return any(any(map(_UNWRAPS.search, names_in(one))) for one in (model, *values.bound(model)))


def comes_wrapped(values: ValueFlow, forward: ast.Call, way: ast.Call) -> bool:
    """Whether the model of a forward pass is in its wrapper if a function is called this way."""
    function, model = values.script.function_of(forward), forward_of(forward)
    name = model.id if isinstance(model, ast.Name) and function is not None else ""
    if function is None or name not in _parameters(function):
        return True
    if function in values.callees(way):
        return _is_given_wrapped(values, function, way, name)
    return all(_is_given_wrapped(values, function, call, name) for call in values.callers.get(function, []))


def _is_given_wrapped(values: ValueFlow, function: Function, call: ast.Call, name: str) -> bool:
    given = given_by(function, call, name)
    wrapped = given is not None and any(values.sites(given, kind) for kind in _WRAPPERS)
    return wrapped and given is not None and not _is_unwrapped(values, given)


def _parameters(function: Function) -> list[str]:
    return [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
