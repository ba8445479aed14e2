"""A GradScaler whose loss is scaled while the optimizer steps past it, is never updated, or unscales twice."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.events import Events, TrainingEvent
from distdbg.lint.script.insertions import can_leave
from distdbg.lint.script.script import FUNCTIONS, Loop, argument, last_word, names_in
from distdbg.model import Confidence

#: scalers of other makers
_UPDATES = re.compile(r"update_scale|adjust_scale|\bapex\b")

REAL_MISTAKES = 1
#: without these words there is nothing to check
NEEDS = ({"backward("}, re.compile(r"scale|autocast"))


def check(context: Context) -> Iterator[Hit]:
    for place in (*context.loops.training, *context.script.all(*FUNCTIONS)):
        does = context.loops.does(place)
        scaled = [e for e in does if e.kind == "backward" and Events.scaled(e)]
        hits = _past_the_scaler(context, does, scaled) if scaled and not context.script.calls("get_scale") else ()
        yield from (*hits, *_never_updated(context, place, does, scaled), *_unscaled_twice(context, place, does))


def _never_updated(
    context: Context, place: ast.AST, does: list[TrainingEvent], scaled: list[TrainingEvent]
) -> Iterator[Hit]:
    """Nothing in the file updates a scaler, and none is passed to a function of another file."""
    steps = [e for e in does if e.kind == "scaler_step"]
    if not steps or context.events.of("update"):
        return
    known = all(e.receiver is not None and context.roles.scaler(e.receiver).of_torch for e in steps)
    looping = scaled and place in context.loops.training
    if not looping and not all(e.receiver is not None and context.roles.scaler(e.receiver) for e in steps):
        return
    if not known and (_UPDATES.search(context.script.text) or _passed_on(context)):
        return
    text = "scaler.step without scaler.update: the scale never adapts"
    related = tuple((e.call, "the loss is scaled") for e in scaled[:1])
    certain = bool(looping) and known
    yield Hit(steps[0].call, text, "certain" if certain else "likely", None if looping else "warning", related)


def _unscaled_twice(context: Context, place: ast.AST, does: list[TrainingEvent]) -> Iterator[Hit]:
    """unscale_ runs again for an optimizer before the scaler is updated: in a loop, or by a second call."""
    earlier: dict[object, TrainingEvent] = {}
    for number, event in enumerate(does):
        if event.kind == "update":
            earlier.clear()
        pair = _scaler_and_optimizer(context, event) if event.kind == "unscale" else None
        if pair is None:
            continue
        loop = next(iter(context.script.loops_around(event.call)), None)
        later = [e for e in does[number:] if e.kind == "update" and not e.excludes(event)]
        first = earlier.setdefault(pair, event)
        if first is not event and set(first.branches) <= set(event.branches):
            related = ((first.top if first.call is event.call else first.call, "unscaled before"),)
        elif loop is not None and later and _only_there(context, place, loop, event, later):
            related = ((later[0].call, "the update, behind the loop"),)
        else:
            continue
        of_torch = event.receiver is not None and context.roles.scaler(event.receiver).of_torch
        text = "unscale_ runs twice for this optimizer before scaler.update(): the second call raises"
        confidence: Confidence = "certain" if of_torch else "likely"
        yield Hit(event.call, text, confidence, None if of_torch else "warning", related)


def _scaler_and_optimizer(context: Context, event: TrainingEvent) -> tuple[object, object] | None:
    """The two variables, if each of them is the same object whenever the event occurs."""
    given = argument(event.call, 0, "optimizer") if isinstance(event.call, ast.Call) else None
    if given is None or event.receiver is None:
        return None
    for node in (event.receiver, given):
        named = [n for n in context.script.all(ast.Name) if n.id == last_word(node) and not isinstance(n.ctx, ast.Load)]
        stores = [n for n in named if context.values.key(n) == context.values.key(node)]
        own = isinstance(node, ast.Attribute) or event.call is event.top
        if not own or len(stores) > 1 or len(context.values.assignments(node)) > 1:
            return None  # a parameter of a helper, or bound to one object after the other
    return context.values.key(event.receiver), context.values.key(given)


def _only_there(
    context: Context, place: ast.AST, loop: Loop, event: TrainingEvent, updates: list[TrainingEvent]
) -> bool:
    """Does the loop, which is a part of `place`, unscale one optimizer each time, while the update follows the loop?"""
    inside = loop is not place and context.script.contains(place, loop) and event.call is event.top
    stored = {n.id for n in context.script.within(loop, ast.Name) if not isinstance(n.ctx, ast.Load)}
    given = argument(event.call, 0, "optimizer") if isinstance(event.call, ast.Call) else None
    rebound = given is None or bool(names_in(given) & stored)
    left = can_leave(context.script, loop.body)
    return inside and not rebound and not left and not any(context.script.contains(loop, e.top) for e in updates)


def _passed_on(context: Context) -> bool:
    """Something that this file does not hold gets the scaler."""
    for call in context.script.all(ast.Call):
        if context.values.callees(call):
            continue
        given = (*call.args, *(k.value for k in call.keywords))
        if any(isinstance(g, (ast.Name, ast.Attribute)) and context.roles.scaler(g) for g in given):
            return True
    return False


def _past_the_scaler(context: Context, does: list[TrainingEvent], scaled: list[TrainingEvent]) -> Iterator[Hit]:
    by_hand = bool(context.events.of("update"))  # unscale_, a look at the gradients, the step, update
    for step in (e for e in does if e.kind == "step"):
        before = [e for e in scaled if not e.excludes(step) and does.index(e) < does.index(step)]
        plain = [e for e in does if e.kind == "backward" and e not in scaled and not e.excludes(step)]
        mended = [e for e in does if e.kind == "scaler_step" or (by_hand and e.kind == "unscale")]
        mended = [e for e in mended if not e.excludes(step)]
        if before and not plain and not mended:
            text = "the loss is scaled, but the optimizer steps past the scaler"
            yield Hit(step.call, text, related=((before[0].call, "the loss is scaled"),))
