"""A training loop that never clears the gradients."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.events import STEPS, Events, TrainingEvent
from distdbg.lint.script.roles import Role
from distdbg.lint.script.script import Loop, last_word, names_in

_HOOKS = ("register_step_pre_hook", "register_step_post_hook", "register_post_accumulate_grad_hook",
          "register_optimizer_step_pre_hook", "register_optimizer_step_post_hook")  # fmt: skip

REAL_MISTAKES = 12
#: without these words there is nothing to check
NEEDS = ({"backward("},)

#: the gradients are freed or set by hand
_CLEARS_LATER = ("zero_grad_", "zero_grad_buffer", "clear_grad", "clear_gradients", "zero_grads", "optimizer_zero_grad")
_MAY_CLEAR = re.compile(r"zero|clear|reset|before|pre_|_start|_begin|hook|callback|optim", re.IGNORECASE)


def check(context: Context) -> Iterator[Hit]:
    if context.frameworks & {"lightning", "trainer", "deepspeed"} or _cleared_by_a_hook(context):
        return
    for loop in context.loops.training:
        does = context.loops.does(loop)
        steps = [e for e in does if e.kind in STEPS and not Events.managed(e)]
        back = [e for e in does if e.kind == "backward" and not Events.managed(e)]
        if not steps or not back:
            continue
        zeros = [e for e in does if e.kind == "zero"]
        if zeros:
            yield from _in_one_branch(context, loop, does)
            continue
        roles = [_role(context, step) for step in steps]
        if not all(roles) or _cleared_by_others(context, loop) or _made_anew(context, loop, steps):
            continue
        known = all(role.of_torch for role in roles)
        if not known and (context.frameworks or context.script.calls(*_CLEARS_LATER) or _hands_over(context, loop)):
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
            severity=None if known else "warning",
            related=(
                (loop, "the loop"),
                (back[0].top, "adds to the gradients"),
                *(((steps[0].call, "steps"),) if steps[0].call is not steps[0].top else ()),
            ),
        )


def _made_anew(context: Context, loop: Loop, steps: list[TrainingEvent]) -> bool:
    """`optimizer = SGD([x])` in each round, of what the round has made: there are no earlier gradients."""
    made = [site for e in steps if e.receiver is not None for site in context.values.sites(e.receiver, "optimizer")]
    return bool(made) and all(context.script.contains(loop, site) for site in made)


def _in_one_branch(context: Context, loop: Loop, does: list[TrainingEvent]) -> Iterator[Hit]:
    """One branch clears, goes backward and steps; the other one of the same `if` does all but clear."""
    zeros = [e for e in does if e.kind == "zero"]
    for back in (e for e in does if e.kind == "backward" and not Events.managed(e)):
        steps = [e for e in does if e.kind in STEPS and not e.excludes(back) and all(z.excludes(e) for z in zeros)]
        if not steps or not all(z.excludes(back) for z in zeros) or not all(_role(context, step) for step in steps):
            continue
        owners = {last_word(_stepped(step)) for step in steps}
        if not owners <= {last_word(z.receiver) for z in zeros if z.receiver is not None}:
            continue  # a model of its own, which may be cleared elsewhere
        if _cleared_by_others(context, loop) or _hands_over(context, loop):
            return
        yield Hit(
            steps[0].top,
            "this branch goes backward and steps, and only the other one clears the gradients",
            severity="warning",
            related=((back.top, "adds to the gradients"), (zeros[0].top, "clears them, in the other branch")),
        )
        return


def _stepped(step: TrainingEvent) -> ast.expr:
    """The optimizer that steps, by itself or by a scaler."""
    call = step.call
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
    return call.args[0] if step.kind == "scaler_step" and call.args else call.func.value


def _role(context: Context, step: TrainingEvent) -> Role:
    """What steps: an optimizer of torch, or what has the role of one; nothing where it may clear by itself."""
    node = step.call.args[0] if step.kind == "scaler_step" and step.call.args else step.receiver  # type: ignore[attr-defined]
    return context.roles.optimizer(node) if node is not None else Role()


def _hands_over(context: Context, loop: Loop) -> bool:
    """A call of the object itself, or of a function without a visible body, that may do what this loop does not."""
    for call in context.script.within(loop, ast.Call):
        if context.values.callees(call) or not isinstance(call.func, ast.Attribute):
            continue
        owner = call.func.value
        if isinstance(owner, ast.Name) and owner.id in ("self", "cls", "super") and _MAY_CLEAR.search(call.func.attr):
            return True
    return False


def _cleared_by_others(context: Context, loop: Loop) -> bool:
    """The optimizer or the model is handed, in the loop, to a function that this file does not hold."""
    for call in context.script.within(loop, ast.Call):
        if context.values.callees(call):
            continue
        name = context.script.last_names[call]
        for given in (*call.args, *(k.value for k in call.keywords)):
            if name in ("step", "unscale_", "clip_grad_norm_", "clip_grad_value_", "save", "print", "len"):
                continue
            if isinstance(given, (ast.Name, ast.Attribute)) and context.roles.optimizer(given):
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
