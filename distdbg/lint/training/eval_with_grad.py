"""An evaluation that records the graph of every batch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.forwards import detached, forward_of, forwards, put_into_mode
from distdbg.lint.script.given import parameter_of
from distdbg.lint.script.kept import ENDS
from distdbg.lint.script.roles import A_MODEL
from distdbg.lint.script.script import FUNCTIONS, LOOPS, Function, Loop, last_word

#: autograd is switched by other means: for all of a process, or by what a rule cannot follow
_SWITCHES = re.compile(
    r"set_grad_enabled|inference_mode\(\s*(?:True)?\s*\)\s*\.__enter__|no_grad\(\)\s*\.__enter__|enable_grad"
)
UNLESS = re.compile(r"volatile\s*=\s*True|^torch\.set_grad_enabled\(False|^torch\.autograd\.set_grad", re.MULTILINE)
_USES_GRADIENTS = re.compile(
    r"autograd\.grad|requires_grad(?!=False\))|\.grad\b(?!\s*=\s*None)|jacobian|hessian|saliency|attack|perturb",
    re.IGNORECASE,
)

REAL_MISTAKES = 45
NEEDS = ({"eval(", *ENDS},)
#: a model is run once, so that it can be written down or counted
_RUN_ONCE = re.compile(r"onnx|jit\.(?:trace|script)|torch2trt|export|symbolic_trace|flops|macs\b", re.IGNORECASE)


def check(context: Context) -> Iterator[Hit]:
    if context.frameworks & {"lightning", "trainer"}:
        return
    modes = context.events.of("eval")
    done: set[ast.AST] = set()
    for mode in modes:
        place = context.script.function_of(mode) or context.script.module_of(mode)
        hit = _in(context, place, mode, put_into_mode(context.script, mode)) if place not in done else None
        if hit is not None:
            done.add(place)
            yield hit
    yield from _detached_at_once(context, done)


def _detached_at_once(context: Context, done: set[ast.AST]) -> Iterator[Hit]:
    """A model runs with gradients on, and all that it gives is freed of its graph."""
    script = context.script
    for call, model, _ in forwards(context.values, lambda name: name == "self" or A_MODEL.match(name)):
        place = script.function_of(call) or script.module_of(call)
        if place in done or context.loops.without_grad(call):
            continue
        freed = _freed(context, call, model)
        if freed is not None:
            done.add(place)
            what = script.source(model)
            text = f"{what} runs with gradients on, and what it gives is detached: its graph is recorded for nothing"
            yield Hit(call, text, "possible", severity="info", related=((freed, "detached here"),))


def _freed(context: Context, call: ast.Call, model: ast.expr) -> ast.AST | None:
    """Where what it gives is freed of its graph, in a training, too; `self(x)` only of a model."""
    script = context.script
    place, owner = script.function_of(call) or script.module_of(call), script.class_of(call)
    if last_word(model) == "self" and (owner is None or not script.is_module(owner)):
        return None
    freed = detached(context.values, call)
    if freed is None or script.has_text(place, _RUN_ONCE):
        return None
    return None if _uses_gradients(context, place) else freed


def _in(context: Context, function: ast.AST, mode: ast.AST, model: ast.expr | None) -> Hit | None:
    script = context.script
    if model is None or _uses_gradients(context, function):
        return None
    trains = _trains(context, function)
    for loop in script.within(function, *LOOPS, behind=mode):
        if script.function_of(loop) is not script.function_of(mode):
            continue
        if trains and context.events.is_between("train", mode, loop):
            break
        if trains and not _is_evaluation(context, loop, mode):
            continue
        forward = _forward(context, loop, model)
        if forward is not None and not context.loops.without_grad(forward) and not context.loops.without_grad(loop):
            return Hit(
                loop,
                f"{script.source(model)} is evaluated here with gradients on: every batch keeps its graph",
                related=((mode, "eval mode"), (forward, "the forward pass")),
            )
    return None


def _uses_gradients(context: Context, place: ast.AST) -> bool:
    """It asks for gradients, or it or one of its callers switches them."""
    script = context.script
    if script.has_text(place, _USES_GRADIENTS) or script.has_text(place, _SWITCHES):
        return True
    calls = context.values.callers.get(place, []) if isinstance(place, FUNCTIONS) else []
    around = {f for call in calls if (f := script.function_of(call)) is not None}
    return any(script.has_text(f, _SWITCHES) for f in around)


def _trains(context: Context, node: ast.AST) -> bool:
    return any(e.kind in ("backward", "step", "scaler_step") for e in context.loops.does(node))


def _is_evaluation(context: Context, loop: Loop, mode: ast.AST) -> bool:
    """In a function that trains, too: a loop over data for validation, behind eval mode in a block around it."""
    script = context.script
    if script.parents[script.statement_of(mode)] not in script.above(loop):
        return False
    return not _trains(context, loop) and context.loops.for_evaluation_by_data(loop)


def _forward(context: Context, loop: ast.AST, model: ast.expr) -> ast.Call | None:
    """`model(x)` or `model.forward(x)` of that very model in it, or in a function that is given the model there."""
    while isinstance(model, ast.Subscript):  # of the models in a container
        model = model.value
    calls = [c for c in context.script.within(loop, ast.Call) if not context.loops.without_grad(c)]
    for call in calls:
        if _is_forward(context, call, model):
            return call  # type: ignore[no-any-return]
    for call in calls:
        for function in context.values.callees(call):
            inner = _under_another_name(context, call, function, model)
            for one in context.script.within(function, ast.Call):
                if inner is not None and _is_forward(context, one, inner):
                    return one  # type: ignore[no-any-return]
    return None


def _under_another_name(context: Context, call: ast.Call, function: Function, model: ast.expr) -> ast.expr | None:
    """What the model is called in a function that is called: the same of self, a parameter of another name."""
    if _of_self(model):
        return model
    key = context.values.key(model)
    given = (g for g in (*call.args, *(k.value for k in call.keywords)) if context.values.key(g) == key is not None)
    name = next((parameter_of(function, call, one) for one in given), "")
    return next((n for n in context.script.within(function, ast.Name) if n.id == name), None) if name else None


def _is_forward(context: Context, call: ast.Call, model: ast.expr) -> bool:
    key, called = context.values.key(model), forward_of(call)
    return key is not None and called is not None and context.values.key(called) == key


def _of_self(model: ast.expr) -> bool:
    return isinstance(model, ast.Attribute) and isinstance(model.value, ast.Name) and model.value.id == "self"
