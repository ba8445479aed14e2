"""Eval mode that is entered in every epoch and never left, or that an evaluation never enters."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.events import TrainingEvent
from distdbg.lint.script.forwards import forward_of
from distdbg.lint.script.given import given_by
from distdbg.lint.script.loops import for_evaluation
from distdbg.lint.script.optimized import trained
from distdbg.lint.script.roles import THE_MODEL
from distdbg.lint.script.script import FUNCTIONS, LOOPS, Loop, last_word, names_in, receiver

_DEPENDS_ON_MODE = re.compile(r"torch\.nn\.(?:.*\.)?(?:Dropout|BatchNorm|SyncBatchNorm)[^.]*$")

REAL_MISTAKES = 38
#: without these words there is nothing to check
NEEDS = (
    {"backward(", "eval("},
    re.compile(r"^eval$|[Dd]ropout|BatchNorm|from_pretrained|^train\($|no_grad|inference_mode"),
)
#: what the model that is trained is called, where its constructor is not in sight
_TRAINED = re.compile(r"^_?(?:model|net|network|actor|critic|policy|generator|discriminator|student)(?:_model|_net)?$")
#: a place where evaluation is all there is
_EVALUATES = re.compile(
    r"eval|infer|predict|test|valid|sampl|generat|pipeline|export|demo|metric|load|build|init", re.IGNORECASE
)


def check(context: Context) -> Iterator[Hit]:
    if context.frameworks & {"lightning", "trainer"}:
        return
    yield from _trains_in_an_evaluation(context)
    if not context.events.of("eval"):
        yield from _never_entered(context)
        return
    yield from _left_by_a_method(context)
    for epochs in context.loops.of_kind("epoch"):
        yield from _never_back(context, epochs)
    for loop in context.loops.training:
        yield from _left_within_an_epoch(context, loop)


def _trains_in_an_evaluation(context: Context) -> Iterator[Hit]:
    """`model.train()` in a loop over validation data that only measures: dropout drops and batch norm learns."""
    for mode in context.events.of("train"):
        loop = next(iter(context.script.loops_around(mode)), None)
        if loop is None or any(e.kind == "backward" for e in context.loops.does(loop)):
            continue
        model = receiver(mode) if context.loops.for_evaluation_by_data(loop) else None
        if model is not None and (THE_MODEL.match(last_word(model)) or trained(context.values, model)):
            text = "the model is put into train mode in a loop that evaluates it"
            yield Hit(mode, text, related=((loop, "the evaluation"),))


def _never_back(context: Context, epochs: Loop) -> Iterator[Hit]:
    """Every epoch enters eval mode, and none puts the model back."""
    does = context.loops.does(epochs)
    kinds = {e.kind for e in does}
    if not context.loops.trains(epochs) or "eval" not in kinds or "train" in kinds:
        return
    mode = next(e for e in does if e.kind == "eval")
    modes = [c for c in context.script.calls("train") if c.args and isinstance(c.func, ast.Attribute)]
    if _on_purpose(context, epochs, does) or any(not context.values.callees(c) for c in modes):
        return
    names = [one for one in (_given_by_the_loop(context, mode), mode.receiver) if one is not None]
    if any(trained(context.values, one, by_name=True) for one in names):
        text = "the model is put into eval mode here, and no epoch puts it back into train mode"
        yield Hit(mode.call, text, related=((epochs, "the loop over epochs"),))


def _left_by_a_method(context: Context) -> Iterator[Hit]:
    """A method that neither is an evaluation by its name nor loads a model, and nothing in the file calls train()."""
    script = context.script
    if re.search(r"\.train\((?!\))|\.training\s*=|set_mode|eval_mode|train_mode", script.text):
        return
    trained = {last_word(r) for c in context.events.of("train") if (r := receiver(c)) is not None}
    for mode in context.events.of("eval"):
        function, owner, model = script.function_of(mode), script.class_of(mode), receiver(mode)
        if function is None or owner is None or model is None or not _TRAINED.match(last_word(model)):
            continue
        given = isinstance(model, ast.Name) and model.id in {a.arg for a in function.args.args}
        of_self = isinstance(model, ast.Attribute) and last_word(model.value) == "self"
        if not (given or of_self) or last_word(model) in trained or function.name.startswith("__"):
            continue
        if _EVALUATES.search(function.name) or _EVALUATES.search(owner.name) or script.is_module(owner):
            continue
        text = f"{function.name} puts the model into eval mode and leaves it there: nothing in this file calls train()"
        yield Hit(mode, text, "possible", severity="info")
        return


def _left_within_an_epoch(context: Context, loop: Loop) -> Iterator[Hit]:
    """Evaluated now and then between batches: all later batches of the epoch are trained in eval mode."""
    does = context.loops.does(loop)
    modes = [e for e in does if e.kind == "eval" and _now_and_then(context, loop, e)]
    if not modes or any(e.kind == "train" for e in does):
        return
    for mode in modes:
        back = next((c for c in context.events.of("train") if _same_model(context, c, mode.call)), None)
        if back is not None and not context.script.contains(loop, back):
            yield Hit(
                mode.top,
                "the model is put into eval mode between the batches of an epoch, and the loop never puts it back",
                related=((loop, "the loop"), (mode.call, "eval mode"), (back, "train mode, outside the loop")),
            )
            return


def _now_and_then(context: Context, loop: Loop, mode: TrainingEvent) -> bool:
    """Under an `if` of the loop, after which the loop goes on."""
    for outer in context.script.above(mode.top):
        if outer is loop:
            return False
        if isinstance(outer, ast.If):
            last = outer.body[-1]
            leaves = isinstance(last, (ast.Return, ast.Break, ast.Raise))
            return not leaves and not _at_the_end(outer.test) and not _without_training(context, loop, outer.test)
    return False


def _at_the_end(test: ast.expr) -> bool:
    """`i == len(loader) - 1`; but `step % (len(loader) // 4) == 0` is now and then."""
    divided = (n.left for n in ast.walk(test) if isinstance(n, ast.BinOp) and isinstance(n.op, (ast.FloorDiv, ast.Div)))
    words = names_in(test)
    return bool(words & {"last", "is_last"}) or (
        "len" in words and not any("len" in names_in(left) for left in divided)
    )


def _without_training(context: Context, loop: Loop, test: ast.expr) -> bool:
    """`if not train:` in a loop that goes backward `if train:`."""
    backward = (e for e in context.loops.does(loop) if e.kind == "backward")
    asked = (_settings(context, at.test) for e in backward for at, _ in e.branches if isinstance(at, ast.If))
    mine = _settings(context, test)
    return any(mine & words for words in asked)


def _settings(context: Context, test: ast.expr) -> set[str]:
    """`train` of `not train`, of `args.train` and of `args["train"]`."""
    parents, nodes = context.script.parents, [n for n in ast.walk(test) if isinstance(n, (ast.Name, ast.Attribute))]
    keys = {n.value for n in ast.walk(test) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return keys | {last_word(n) for n in nodes if not isinstance(parents[n], (ast.Attribute, ast.Subscript))}


def _same_model(context: Context, one: ast.AST, other: ast.AST) -> bool:
    """The receivers of two calls may be one model: of the same origin, or of the same name."""
    mine, its = receiver(one), receiver(other)
    if mine is None or its is None:
        return False
    return bool(context.values.sites(mine) & context.values.sites(its)) or last_word(mine) == last_word(its) != ""


def _on_purpose(context: Context, loop: Loop, does: list[TrainingEvent]) -> bool:
    """`model.eval()` right before the training, in epochs that evaluate nothing: tuned with dropout off."""
    script, modes = context.script, [e for e in does if e.kind == "eval"]
    statement = script.statement_of(modes[0].top)
    if len(modes) > 1 or modes[0].call is not modes[0].top or statement not in loop.body:
        return False
    if any(context.loops.in_evaluation(o) or context.loops.without_grad(o) for o in script.within(loop, *LOOPS)):
        return False
    model = names_in(statement) - {"eval"}
    behind = loop.body[loop.body.index(statement) + 1 :]
    follows = next((s for s in behind if isinstance(s, LOOPS) or names_in(s) & model or context.loops.reached(s)), None)
    return follows is not None and context.loops.trains(follows)


def _never_entered(context: Context) -> Iterator[Hit]:
    """Dropout drops and batch norm learns while the model is measured, whose layers the file shows."""
    script = context.script
    if re.search(r"\.training\s*=|eval_mode|\.train\(\w", script.text):
        return
    layers = [c for c, name in script.call_names.items() if _DEPENDS_ON_MODE.match(name) and script.class_of(c)]
    loops = [loop for loop in script.all(*LOOPS) if context.loops.in_evaluation(loop)]
    functions = [function for function in script.all(*FUNCTIONS) if for_evaluation(function.name)]
    for call in (c for place in (*loops, *functions) for c in script.within(place, ast.Call)) if layers else ():
        if forward_of(call) is not None and trained(context.values, call.func) and context.loops.without_grad(call):
            text = "the model is evaluated in train mode: nothing in this file calls eval()"
            yield Hit(call, text, related=((layers[0], "behaves otherwise in train mode"),))
            return


def _given_by_the_loop(context: Context, mode: TrainingEvent) -> ast.expr | None:
    """What the loop calls the model: of `evaluate(net, data)` that net which the function calls `model`."""
    model, function = mode.receiver, context.script.function_of(mode.call)
    called = mode.top if isinstance(mode.top, ast.Call) else None
    if called is None or function is None or not isinstance(model, ast.Name) or called is mode.call:
        return model
    given = given_by(function, called, model.id) if function in context.values.callees(called) else None
    return given if given is not None else model
