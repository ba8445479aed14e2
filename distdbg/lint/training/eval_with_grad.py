"""An evaluation that records the graph of every batch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.forwards import detached, forward_of, forwards, put_into_mode
from distdbg.lint.script.roles import A_MODEL
from distdbg.lint.script.script import FUNCTIONS, LOOPS, Function, Loop, last_word, receiver

#: autograd is switched by other means: for all of a process, or by what a rule cannot follow
_SWITCHES = re.compile(
    r"set_grad_enabled|inference_mode\(\s*(?:True)?\s*\)\s*\.__enter__|no_grad\(\)\s*\.__enter__|enable_grad"
)
UNLESS = re.compile(r"volatile\s*=\s*True|^torch\.set_grad_enabled\(False|^torch\.autograd\.set_grad", re.MULTILINE)
_USES_GRADIENTS = re.compile(
    r"autograd\.grad|requires_grad(?!=False\))|\.grad\b(?!\s*=\s*None)|jacobian|hessian|saliency|attack|perturb",
    re.IGNORECASE,
)

#: a model that another one learns from: nothing trains it
_PART = r"(?:model|net|network|policy|encoder)"
_TEACHER_NAME = rf"_?(?:teacher(?:_(?:model|net|network|encoder))?|(?:ref|reference|ema|frozen)_{_PART})"

REAL_MISTAKES = 45
#: without these words there is nothing to check
NEEDS = (re.compile(rf"^eval\($|^detach\($|^train\($|^(?:model|net|network|forward)\($|^{_TEACHER_NAME}\($"),)
#: a function that may be a part of a training, by its name
_OF_TRAINING = re.compile(
    r"(?<!eval_)(?<!test_)(?<!val_)(?<!valid_)step|train|loss|forward|fit|learn|update|optimi", re.IGNORECASE
)
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
    yield from _forward_only(context, done)


def _forward_only(context: Context, done: set[ast.AST]) -> Iterator[Hit]:
    """A model in eval mode is run outside of a loop, or by another method; or what it gives is detached at once."""
    script, values = context.script, context.values
    made = {mode: model for mode in context.events.of("eval") if (model := put_into_mode(script, mode)) is not None}
    modes = {values.key(model): mode for mode, model in made.items()}
    trained = {values.key(r) for mode in context.events.of("train") if (r := receiver(mode)) is not None}
    names = {last_word(model) for model in made.values()}
    for call, model, key in forwards(values, lambda name: name in names or name == "self" or A_MODEL.match(name)):
        mode, place = modes.get(key), script.function_of(call) or script.module_of(call)
        if place in done or isinstance(script.parents[call], ast.Expr):
            continue  # what it gives is dropped: it is run to make its lazy layers, or to warm it up
        if mode is not None and not _holds_at(context, mode, call, elsewhere=key not in trained):
            mode = None
        freed = _freed(context, call, model)
        if (mode is None and freed is None) or context.loops.without_grad(call):
            continue
        if freed is None and _may_train(context, call):
            continue
        done.add(place)
        what = script.source(model)
        if freed is not None:
            text = f"{what} runs with gradients on, and what it gives is detached: its graph is recorded for nothing"
        else:
            text = f"{what} runs in eval mode with gradients on: its graph is recorded, and nothing here goes backward"
        related = ((freed, "detached here"),) if freed is not None else ((mode, "eval mode"),) if mode else ()
        yield Hit(call, text, "possible", severity="info", related=related)


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


def _holds_at(context: Context, mode: ast.AST, call: ast.Call, *, elsewhere: bool) -> bool:
    """Is the model in eval mode at this call: behind the mode in its function, or in another one where none trains?"""
    if context.script.function_of(mode) is context.script.function_of(call):
        return context.script.begin[mode] < context.script.begin[call]
    return elsewhere


def _may_train(context: Context, call: ast.Call) -> bool:
    """It trains, uses gradients, exports the model, or is a part of a model or of a loss: who calls it may train."""
    script = context.script
    function, owner = script.function_of(call), script.class_of(call)
    place = function or script.module_of(call)
    if owner is not None and any(isinstance(f, FUNCTIONS) and f.name == "forward" for f in owner.body):
        return True
    if function is not None and _OF_TRAINING.search(function.name):
        return True
    if script.has_text(place, _RUN_ONCE):
        return True
    return _trains(context, place) or _uses_gradients(context, place)


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
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args) if a.arg not in ("self", "cls")]
    pairs = [*zip(names, call.args, strict=False), *((k.arg, k.value) for k in call.keywords)]
    its = next((n for n, v in pairs if n and context.values.key(v) == context.values.key(model) is not None), None)
    return next((n for n in context.script.within(function, ast.Name) if n.id == its), None) if its else None


def _is_forward(context: Context, call: ast.Call, model: ast.expr) -> bool:
    key, called = context.values.key(model), forward_of(call)
    return key is not None and called is not None and context.values.key(called) == key


def _of_self(model: ast.expr) -> bool:
    return isinstance(model, ast.Attribute) and isinstance(model.value, ast.Name) and model.value.id == "self"
