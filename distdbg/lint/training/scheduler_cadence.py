"""A schedule that is stepped per epoch though it counts batches, or the other way round."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.events import TrainingEvent
from distdbg.lint.script.script import Loop, argument, names_in

_BATCHES = re.compile(r"len|loader|steps|iters|batches|iterations", re.IGNORECASE)
_EPOCHS = re.compile(r"epoch", re.IGNORECASE)

REAL_MISTAKES = 1
#: without these words there is nothing to check
NEEDS = ({"backward("}, re.compile(r"^(?:\w+LR|get_\w*schedule\w*|get_scheduler)\($"))


def check(context: Context) -> Iterator[Hit]:
    for loop in context.loops.training:
        outer = _epochs_around(context, loop)
        does = context.loops.does(outer) if outer is not None else context.loops.does(loop)
        inside = {id(e.call) for e in context.loops.does(loop) if e.kind == "schedule"}
        for event in (e for e in does if e.kind == "schedule"):
            hit = _judge(context, event, per_batch=id(event.call) in inside, known=outer is not None)
            if hit is not None:
                yield hit


def _epochs_around(context: Context, loop: Loop) -> Loop | None:
    """The loop over epochs that runs this loop, in its own function or through calls."""
    for epochs in context.loops.of_kind("epoch"):
        if epochs is not loop and context.script.contains(epochs, loop):
            return epochs
        if context.script.function_of(loop) in context.loops.reached(epochs):
            return epochs
    return None


def _judge(context: Context, event: TrainingEvent, *, per_batch: bool, known: bool) -> Hit | None:
    if event.receiver is None or not known or any(isinstance(n, ast.If) for n, _ in event.branches):
        return None
    sites = context.values.sites(event.receiver, "scheduler")
    if len(sites) != 1:
        return None
    site = next(iter(sites))
    name = context.script.last_names[site]
    if name == "OneCycleLR" and not per_batch and _counts_batches(site):
        return _hit(event, site, "OneCycleLR counts batches and is stepped once an epoch: it never leaves its warm-up")
    if name == "CosineAnnealingLR" and per_batch and _counts_epochs(context, site):
        return _hit(
            event, site, "CosineAnnealingLR counts epochs and is stepped every batch: it ends within the first epochs"
        )
    return None


def _hit(event: TrainingEvent, site: ast.Call, text: str) -> Hit:
    return Hit(event.call, text, related=((site, "the scheduler"),))


def _counts_batches(site: ast.Call) -> bool:
    if argument(site, -1, "steps_per_epoch") is not None:
        per = argument(site, -1, "steps_per_epoch")
        return not (isinstance(per, ast.Constant) and per.value == 1)
    total = argument(site, 2, "total_steps")
    return total is not None and any(_BATCHES.search(w) for w in names_in(total) - {"total_steps"})


def _counts_epochs(context: Context, site: ast.Call) -> bool:
    most = argument(site, 1, "T_max")
    if most is None:
        return False
    words, made = names_in(most), [most]
    for assigned in context.script.all(ast.Assign):
        if any(isinstance(t, ast.Name) and t.id in words for t in assigned.targets):
            words = words | names_in(assigned.value)
            made.append(assigned.value)
    if any(isinstance(part, ast.Mult) for one in made for part in ast.walk(one)):
        return False  # `epochs * per_epoch`, whatever that is called
    return any(_EPOCHS.search(w) for w in words) and not any(_BATCHES.search(w) for w in words)
