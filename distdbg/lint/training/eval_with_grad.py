"""An evaluation that records the graph of every batch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.script import FUNCTIONS, LOOPS, Function, Loop

#: autograd is switched by other means
UNLESS = re.compile(r"set_grad_enabled|inference_mode\(\s*(?:True)?\s*\)\s*\.__enter__|volatile\s*=\s*True|enable_grad")
_USES_GRADIENTS = re.compile(
    r"autograd\.grad|requires_grad|\.grad\b|jacobian|hessian|saliency|attack|perturb", re.IGNORECASE
)

#: without these words there is nothing to check
NEEDS = ({"eval("},)


def check(context: Context) -> Iterator[Hit]:
    if context.frameworks & {"lightning", "trainer"}:
        return
    function: Function
    for function in context.script.all(*FUNCTIONS):
        for mode in context.script.within(function, ast.Call):
            if context.script.function_of(mode) is function and mode in context.events.of("eval"):
                hit = _in(context, function, mode)
                if hit is not None:
                    yield hit
                    break


def _in(context: Context, function: Function, mode: ast.Call) -> Hit | None:
    script = context.script
    model = mode.func.value if isinstance(mode.func, ast.Attribute) else None
    if model is None or _USES_GRADIENTS.search(script.source(function)):
        return None
    trains = _trains(context, function)
    for loop in script.within(function, *LOOPS):
        if script.begin[loop] < script.begin[mode] or script.function_of(loop) is not function:
            continue
        if trains and not _is_evaluation(context, loop, mode):
            continue
        forward = _forward(context, loop, model)
        if forward is not None and not context.loops.without_grad(forward):
            return Hit(
                loop,
                f"{script.source(model)} is evaluated here with gradients on: every batch keeps its graph",
                related=((mode, "eval mode"), (forward, "the forward pass")),
            )
    return None


def _trains(context: Context, node: ast.AST) -> bool:
    return any(e.kind in ("backward", "step", "scaler_step") for e in context.loops.does(node))


def _is_evaluation(context: Context, loop: Loop, mode: ast.Call) -> bool:
    """In a function that trains, too: a loop over data for validation, behind eval mode in a block around it."""
    script = context.script
    block = script.parents[script.statement_of(mode)]
    back = (e for e in context.events.of("train") if script.begin[mode] < script.begin[e] < script.begin[loop])
    if block not in script.above(loop) or any(back):
        return False
    return not _trains(context, loop) and context.loops.for_evaluation_by_data(loop)


def _forward(context: Context, loop: Loop, model: ast.expr) -> ast.Call | None:
    """`model(x)` or `model.forward(x)` of that very model in the loop."""
    while isinstance(model, ast.Subscript):  # of the models in a container
        model = model.value
    key = context.values.key(model)
    places: list[ast.AST] = [loop]
    if _of_self(model):  # methods that the loop calls, with gradients on
        calls = [c for c in context.script.within(loop, ast.Call) if not context.loops.without_grad(c)]
        places += [f for c in calls for f in context.values.callees(c)]
    for call in (c for place in places for c in context.script.within(place, ast.Call)):
        function = call.func
        if isinstance(function, ast.Attribute) and function.attr == "forward":
            function = function.value
        while isinstance(function, ast.Subscript):
            function = function.value
        if key is not None and context.values.key(function) == key and (call.args or call.keywords):
            return call  # type: ignore[no-any-return]
    return None


def _of_self(model: ast.expr) -> bool:
    return isinstance(model, ast.Attribute) and isinstance(model.value, ast.Name) and model.value.id == "self"
