"""An evaluation that records the graph of every batch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.forwards import RUNS, detached, forward_of, forwards, put_into_mode
from distdbg.lint.script.given import given_constants
from distdbg.lint.script.loops import for_evaluation
from distdbg.lint.script.roles import A_MODEL, THE_MODEL
from distdbg.lint.script.script import FUNCTIONS, LOOPS, Function, Loop, last_word, names_in, receiver

#: autograd is switched by other means: for all of a process, or by what a rule cannot follow
_SWITCHES = re.compile(
    r"set_grad_enabled|inference_mode\(\s*(?:True)?\s*\)\s*\.__enter__|no_grad\(\)\s*\.__enter__|enable_grad"
)
UNLESS = re.compile(r"volatile\s*=\s*True|^torch\.set_grad_enabled\(False|^torch\.autograd\.set_grad", re.MULTILINE)
_USES_GRADIENTS = re.compile(
    r"autograd\.grad|requires_grad(?!=False\))|\.grad\b(?!\s*=\s*None)|jacobian|hessian|saliency|attack|perturb",
    re.IGNORECASE,
)
#: gradients are turned off somewhere, or the file is another framework's; faster than a pattern
_OFF = (
    "no_grad", "inference_mode", "grad_enabled", "requires_grad", "volatile", "tensorflow", "paddle", "import jax",
    "from jax", "import mxnet", "from mxnet",
)  # fmt: skip
#: a method that evaluates one batch, by its name
_EVALUATES_A_BATCH = re.compile(
    r"^_?(?:eval|evaluate|evaluation|val|valid|validate|validation|test)_(?:step|batch|one_batch)$"
)

#: a model that another one learns from: nothing trains it
_PART = r"(?:model|net|network|policy|encoder)"
_TEACHER_NAME = rf"_?(?:teacher(?:_(?:model|net|network|encoder))?|(?:ref|reference|ema|frozen)_{_PART})"
_TEACHER = re.compile(rf"^{_TEACHER_NAME}$")
#: a method that writes a text or draws a sample
_GENERATES = re.compile(r"^(?:generate|sample)(?:_|$)")

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
    for statement, model in _models_in_eval_mode(context):
        place = context.script.function_of(statement) or context.script.module_of(statement)
        hit = _in(context, place, statement, model) if place not in done else None
        if hit is not None:
            done.add(place)
            yield hit
    yield from _told_not_to_train(context)
    yield from _nowhere_off(context, done)
    yield from _forward_only(context, done)
    yield from _one_batch(context)
    yield from _beside_no_grad(context)
    yield from _teaches_with_gradients(context)


def _models_in_eval_mode(context: Context) -> Iterator[tuple[ast.AST, ast.expr]]:
    """`model = load(path)` of a function that puts what it returns into eval mode."""
    script = context.script
    loaders = {script.function_of(mode): mode for mode in context.events.of("eval")}
    for function, mode in loaders.items():
        name = receiver(mode)
        returned = script.within(function, ast.Return) if function is not None else []
        if function is None or not isinstance(name, ast.Name) or any(_trains(context, f) for f in [function]):
            continue
        if not any(isinstance(r.value, ast.Name) and r.value.id == name.id for r in returned):
            continue
        for call in context.values.callers.get(function, []):
            match script.parents[call]:
                case ast.Assign(targets=[ast.Name() as target]) as statement:
                    yield statement, target


def _told_not_to_train(context: Context) -> Iterator[Hit]:
    """`run_epoch(loader, train=False)` of a function that goes backward only where it is told to train."""
    script, seen = context.script, set[Function]()
    modes = (*context.events.of("eval"), *(c for c in context.events.of("train") if isinstance(c, ast.Call) and c.args))
    for function in dict.fromkeys(f for mode in modes if (f := script.function_of(mode)) is not None):
        calls = context.values.callers.get(function, [])
        does = [e for e in context.loops.does(function) if e.kind in ("backward", "eval", "train")]
        if function in seen or not any(e.kind == "backward" and e.branches for e in does):
            continue
        if _uses_gradients(context, function):
            continue
        for call in calls:
            its = {e.kind for e in context.events.of_call(call, function)}
            if "backward" in its or "train" in its or "eval" not in its or context.loops.without_grad(call):
                continue
            model = next((receiver(e.call) for e in does if e.kind in ("eval", "train")), None)
            forwards = (
                c for c in script.within(function, ast.Call) if model is not None and _is_forward(context, c, model)
            )
            given = given_constants(script, function, call, {})
            forward = next((c for c in forwards if not context.events.left_out(c, function, given)), None)
            if forward is None or context.loops.without_grad(forward):
                continue
            seen.add(function)
            text = f"{function.name} is told not to train here, and records the graph of every batch all the same"
            yield Hit(call, text, related=((forward, "the forward pass"),))
            break


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


def _one_batch(context: Context) -> Iterator[Hit]:
    """A method that evaluates one batch in eval mode, in a file that never turns gradients off."""
    script = context.script
    for mode in context.events.of("eval"):
        function, model = script.function_of(mode), receiver(mode)
        if function is None or model is None or not _EVALUATES_A_BATCH.match(function.name):
            continue
        if re.search(r"no_grad|inference_mode", script.file_of(mode).text) or context.loops.without_grad(mode):
            continue
        if _trains(context, function) or _uses_gradients(context, function):
            continue
        forward = _forward(context, function, model)
        if forward is not None and not script.loops_around(forward):
            calls = [c for c in script.within(function, ast.Call) if c is forward or _leads_to(context, c, forward)]
            text = f"{function.name} evaluates a batch, and nothing in this file turns gradients off"
            yield Hit(calls[-1], text, "possible", severity="info", related=((mode, "eval mode"),))


def _beside_no_grad(context: Context) -> Iterator[Hit]:
    """An inference runs one model under no_grad, and another one behind it with gradients on."""
    script = context.script
    for block in script.all(ast.With):
        function = script.function_of(block)
        if function is None or not any(_turns_off(item.context_expr) for item in block.items):
            continue
        if context.loops.without_grad(function) or _trains(context, function) or _uses_gradients(context, function):
            continue
        modes = [m for m in context.events.of("eval") if script.function_of(m) is function]
        models = {context.values.key(r): script.begin[m] for m in reversed(modes) if (r := receiver(m)) is not None}
        for call in script.within(function, ast.Call):
            owner = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr in RUNS else call.func
            its = context.values.key(owner) if isinstance(owner, (ast.Name, ast.Attribute)) else None
            dropped = isinstance(script.parents[call], ast.Expr)  # a warm-up
            if its is None or script.begin[call] < models.get(its, script.end[function]):
                continue  # not in eval mode yet
            if call.args and not dropped and not context.loops.without_grad(call):
                text = f"{script.source(owner)} runs with gradients on, beside what runs without them"
                yield Hit(call, text, related=((block, "gradients are off here only"),))
                return


def _turns_off(item: ast.expr) -> bool:
    return bool({"no_grad", "inference_mode"} & names_in(item))


def _nowhere_off(context: Context, done: set[ast.AST]) -> Iterator[Hit]:
    """An evaluation or a generation by its name that does not train, in a file that never turns gradients off."""
    script = context.script
    for function in script.all(*FUNCTIONS):
        generates = _GENERATES.match(function.name) is not None
        if function in done or not (generates or for_evaluation(function.name)):
            continue
        file = script.file_of(function)
        if any(part in file.text for part in _OFF) or (file is not script.file and _SWITCHES.search(script.file.text)):
            continue
        for call in script.within(function, ast.Call):
            if not (_runs_a_model(call, or_self=generates) and (call.args or call.keywords)):
                continue  # most calls
            loop = next(iter(script.loops_around(call)), None)
            if loop is None and (generates or script.class_of(function) or function.name.startswith("test_")):
                continue  # a method, or a test of a model: who calls it may turn gradients off
            if context.loops.without_grad(call):
                continue
            if not script.has_text(function, _USES_GRADIENTS) and not _trains(context, function):
                text = f"{function.name} runs the model, and nothing in this file turns gradients off"
                yield Hit(loop or call, text, "possible", severity="info", related=((call, "the forward pass"),))
                done.add(function)
            break


def _runs_a_model(call: ast.Call, *, or_self: bool) -> bool:
    """By name: `model(x)`, `self.model(x)`, `model.forward(x)`; of a method that generates `self.forward(x)`, too."""
    called = call.func
    if isinstance(called, ast.Attribute) and called.attr == "forward":
        called = called.value
    if isinstance(called, ast.Name):
        return THE_MODEL.match(called.id) is not None or (or_self and called.id == "self")
    return (
        isinstance(called, ast.Attribute) and last_word(called.value) == "self" and bool(THE_MODEL.match(called.attr))
    )


def _teaches_with_gradients(context: Context) -> Iterator[Hit]:
    """`self.teacher(x)` beside what learns from it, in a file that neither freezes it nor turns gradients off."""
    script = context.script
    if re.search(r"no_grad|inference_mode|grad_enabled|requires_grad|enable_grad", script.text):
        return
    for call in script.all(ast.Call):
        if not isinstance(call.func, (ast.Name, ast.Attribute)) or not (call.args or call.keywords):
            continue
        function = script.function_of(call)
        if not _TEACHER.match(last_word(call.func)) or function is None or context.values.callees(call):
            continue
        text = f"{script.source(call.func)} is run with gradients on: its graph is recorded, and nothing trains it here"
        yield Hit(call, text, "possible", severity="info")
        return


def _leads_to(context: Context, call: ast.Call, node: ast.AST) -> bool:
    return any(context.script.contains(function, node) for function in context.values.callees(call))


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
