"""The scheduler steps before the optimizer: the first learning rate is skipped."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.events import STEPS, TrainingEvent
from distdbg.lint.script.roles import Role

#: without these words there is nothing to check
NEEDS = ({"backward("}, {"step("})


def check(context: Context) -> Iterator[Hit]:
    seen: set[ast.AST] = set()
    for loop in (*context.loops.training, *context.loops.of_kind("epoch")):
        # of the loop's body, not of its header
        does = [e for e in context.loops.does(loop) if any(context.script.contains(s, e.top) for s in loop.body)]
        steps = [n for n, e in enumerate(does) if e.kind in STEPS]
        if not steps:
            continue
        for event in does[: steps[0]]:
            if event.kind != "schedule" or event.branches or event.call in seen:
                continue
            role = _role(context, event)
            if not role or (not role.of_torch and context.frameworks):
                continue
            inner = context.script.loops_around(event.top)
            if inner and inner[0] is not loop:  # a small loop of its own that winds the schedule forward
                continue
            seen.add(event.call)
            yield Hit(
                event.call,
                "the scheduler steps before the optimizer: the first learning rate is skipped",
                "certain" if event.call is event.top and role.of_torch else "likely",
                related=((does[steps[0]].call, "the optimizer's step"),),
            )


def _role(context: Context, event: TrainingEvent) -> Role:
    """A scheduler of torch, stepped without an epoch, or what has the role of one."""
    call, owner = event.call, event.receiver
    if not isinstance(call, ast.Call) or call.args or call.keywords or owner is None:
        return Role()
    return context.roles.scheduler(owner)
