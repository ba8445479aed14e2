"""Find the calls that run a model, and what is done with what it gives."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from distdbg.lint.script.kept import ENDS
from distdbg.lint.script.kinds import METHODS
from distdbg.lint.script.script import Key, Script, last_word, receiver
from distdbg.lint.script.values import ValueFlow

#: of a project's own models, by their names: `incremental_forward`, `encode_image`, `get_text_features`
_RUNS_A_PART = re.compile(
    r"^_?(?:\w+_)?forward(?:_\w+)?$|^(?:infer|inference|encode|decode|sample|translate|reconstruct)(?:_\w+)?$|"
    r"^(?:get|compute|extract)_(?:\w+_)?(?:loss|losses|features?|embeddings?|logits)$"
)
#: functions of a tensor whose result carries its graph on
_CARRY = re.compile(r"^(?:log_)?softmax$|^sigmoid$|^tanh$|^squeeze$|^normalize$|^cat$|^stack$|^flatten$|^mean$|^sum$")


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


def run_by_a_method(call: ast.Call) -> ast.expr | None:
    """`model` of `model.encode_image(x)`."""
    owner = receiver(call)
    if not isinstance(owner, (ast.Name, ast.Attribute)) or not (call.args or call.keywords):
        return None
    return owner if _RUNS_A_PART.match(last_word(call.func)) else None


def forwards(values: ValueFlow, named: Callable[[str], object]) -> Iterator[tuple[ast.Call, ast.expr, Key]]:
    """The calls of what has such a name, each with the model and its key."""
    for call in values.script.all(ast.Call):
        for model in (forward_of(call), run_by_a_method(call)):
            key = values.key(model) if model is not None and named(last_word(model)) else None  # not for most calls
            if model is not None and key is not None:
                yield call, model, key
                break


def put_into_mode(script: Script, mode: ast.AST) -> ast.expr | None:
    """`model` of `model.eval()`, of `model.to(device).eval()`, and of `model = build().eval().to(device)`."""
    model, outer = receiver(mode), mode
    while isinstance(model, ast.Call) and isinstance(model.func, ast.Attribute) and model.func.attr in METHODS:
        model = model.func.value
    if not isinstance(model, ast.Call):
        return model
    while isinstance(outer, ast.Call) or (isinstance(outer, ast.Attribute) and outer.attr in METHODS):
        below, outer = outer, script.parents[outer]
        if isinstance(outer, ast.Call) and below is not outer.func:
            return None
    match outer:
        case ast.Assign(targets=[ast.Name() | ast.Attribute() as target]):
            return target
    return None


def detached(values: ValueFlow, call: ast.AST, deepest: int = 3) -> ast.AST | None:
    """Where all that the call gives is freed of its graph: `model(x).detach()`, `loss = model(x)` … `loss.item()`."""
    script = values.script
    at, outer = _chain(script, call)
    if at is not None or not deepest:
        return at
    match outer:
        case ast.Assign(targets=[ast.Name() as one]):
            kept = [one]
        case ast.Assign(targets=[ast.Tuple(elts=parts)]) if all(isinstance(part, ast.Name) for part in parts):
            kept = [part for part in parts if isinstance(part, ast.Name)]
        case _:
            return None
    first: ast.AST | None = None
    for name in (n for one in kept for n in _reads_after(values, one, outer)):
        end = detached(values, name, deepest - 1)
        if end is None:
            return None
        first = first or end
    return first


def _reads_after(values: ValueFlow, kept: ast.Name, statement: ast.AST) -> Iterator[ast.Name]:
    script = values.script
    key, function = values.key(kept), script.function_of(kept) or script.module_of(kept)
    for name in script.named_within(function, kept.id, after=statement):
        if isinstance(name.ctx, ast.Load) and values.key(name) == key:
            yield name


def _chain(script: Script, node: ast.AST) -> tuple[ast.AST | None, ast.AST]:
    """`.detach` among the attributes, calls and subscripts that follow a value, and what is around them."""
    below, outer = node, script.parents[node]
    while isinstance(outer, (ast.Attribute, ast.Subscript, ast.Call)) and below is not getattr(outer, "slice", None):
        if isinstance(outer, ast.Call) and below is not outer.func:
            if last_word(outer.func) in ENDS:  # `torch.argmax(x)`
                return outer, outer
            if below not in outer.args[:1] or not _CARRY.match(last_word(outer.func)):
                break
        if isinstance(outer, ast.Attribute) and outer.attr in ENDS:
            return outer, outer
        below, outer = outer, script.parents[outer]
    return None, outer
