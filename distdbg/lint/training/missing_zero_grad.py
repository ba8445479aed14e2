"""A training loop that never clears the gradients."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.events import STEPS, Events, TrainingEvent
from distdbg.lint.script.script import Loop, names_in

_HOOKS = ("register_step_pre_hook", "register_step_post_hook", "register_post_accumulate_grad_hook",
          "register_optimizer_step_pre_hook", "register_optimizer_step_post_hook")  # fmt: skip

#: without these words there is nothing to check
NEEDS = ({"backward("},)


def check(context: Context) -> Iterator[Hit]:
    if context.frameworks & {"lightning", "trainer", "deepspeed"} or _cleared_by_a_hook(context):
        return
    for loop in context.loops.training:
        does = context.loops.does(loop)
        steps = [e for e in does if e.kind in STEPS and not Events.managed(e)]
        back = [e for e in does if e.kind == "backward" and not Events.managed(e)]
        if not steps or not back or any(e.kind == "zero" for e in does):
            continue
        if not _plain(context, steps) or _cleared_by_others(context, loop):
            continue
        around = context.script.loops_around(loop)
        outside = any(context.script.contains([loop, *around][-1], node) for node in context.events.of("zero"))
        # cleared in the loop over epochs only, the batches of an epoch still pile up
        kinds = [context.loops.kinds[one] for one in (loop, *around[:1])]
        if outside and kinds != ["batch", "epoch"]:
            continue
        yield Hit(
            steps[0].top,
            "this loop steps the optimizer and never clears the gradients: each step adds all earlier ones",
            related=((loop, "the loop"), (back[0].top, "adds to the gradients")),
        )


def _plain(context: Context, steps: list[TrainingEvent]) -> bool:
    """Steps of optimizers of torch that this file makes; who knows what another one does by itself."""
    for step in steps:
        node = step.call.args[0] if step.kind == "scaler_step" and step.call.args else step.receiver  # type: ignore[attr-defined]
        sites = context.values.sites(node, "optimizer") if node is not None else set()
        if not sites or not all(context.script.call_names[s].startswith("torch.optim") for s in sites):
            return False
    return True


def _cleared_by_others(context: Context, loop: Loop) -> bool:
    """The optimizer or the model is handed, in the loop, to a function that this file does not hold."""
    for call in context.script.within(loop, ast.Call):
        if context.values.callees(call):
            continue
        name = context.script.last_names[call]
        for given in (*call.args, *(k.value for k in call.keywords)):
            if name in ("step", "unscale_", "clip_grad_norm_", "clip_grad_value_", "save", "print", "len"):
                continue
            if isinstance(given, (ast.Name, ast.Attribute)) and context.values.sites(given, "optimizer"):
                return True
            if "zero_grad" in names_in(given):
                return True
    return False


def _cleared_by_a_hook(context: Context) -> bool:
    """A hook of the optimizer clears, or is one that this file does not hold."""
    script, zeros = context.script, context.events.of("zero")
    for call in script.calls(*_HOOKS):
        places = [*(a for a in call.args if isinstance(a, ast.Lambda)), *context.loops.reached(call)]
        if not places or any(script.contains(place, zero) for place in places for zero in zeros):
            return True
    return False
