"""Find the calls that run a model, and what is done with what it gives."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from distdbg.lint.script.script import Script, last_word
from distdbg.lint.script.values import Key, ValueFlow

#: methods that run a model
RUNS = ("infer", "inference", "generate", "sample", "forward")
#: methods that make data of what a model gives: the graph ends there
_DETACHES = frozenset(("detach", "detach_", "data"))


def forward_of(call: ast.Call) -> ast.expr | None:
    """`model` of `model(x)`, `model.forward(x)` and `models[0](x)`, if something is given to it."""
    called: ast.expr = call.func
    if not (call.args or call.keywords):
        return None
    if isinstance(called, ast.Attribute) and called.attr == "forward":
        called = called.value
    while isinstance(called, ast.Subscript):
        called = called.value
    return called if isinstance(called, (ast.Name, ast.Attribute)) else None


def forwards(values: ValueFlow, named: Callable[[str], object]) -> Iterator[tuple[ast.Call, ast.expr, Key]]:
    """The calls of what has such a name, each with the model and its key."""
    for call in values.script.all(ast.Call):
        model = forward_of(call)
        if model is None or not named(last_word(model)):
            continue  # most calls
        key = values.key(model)
        if key is not None:
            yield call, model, key


def detached(values: ValueFlow, call: ast.Call) -> ast.AST | None:
    """Where all that the call gives is freed of its graph: `model(x).detach()`, `out = model(x)` … `out.data`."""
    script = values.script
    at, outer = _chain(script, call)
    if at is not None:
        return at
    match outer:
        case ast.Assign(targets=[ast.Name() as kept]):
            pass
        case _:
            return None
    key, end = values.key(kept), script.end[outer]
    ends = [_chain(script, n)[0] for n in _reads(values, script, key, kept) if script.begin[n] >= end]
    return ends[0] if ends and all(ends) else None


def _reads(values: ValueFlow, script: Script, key: Key | None, kept: ast.Name) -> Iterator[ast.Name]:
    function = script.function_of(kept) or script.module_of(kept)
    for name in script.within(function, ast.Name):
        if name.id == kept.id and isinstance(name.ctx, ast.Load) and values.key(name) == key:
            yield name


def _chain(script: Script, node: ast.AST) -> tuple[ast.AST | None, ast.AST]:
    """`.detach` among the attributes, calls and subscripts that follow a value, and what is around them."""
    below, outer = node, script.parents[node]
    while isinstance(outer, (ast.Attribute, ast.Subscript, ast.Call)) and below is not getattr(outer, "slice", None):
        if isinstance(outer, ast.Call) and below is not outer.func:
            break
        if last_word(outer) in _DETACHES:
            return outer, outer
        below, outer = outer, script.parents[outer]
    return None, outer
