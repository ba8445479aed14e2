"""The scheduler steps before the optimizer: the first learning rate is skipped."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.events import STEPS, Events, TrainingEvent
from distdbg.lint.script.roles import Role
from distdbg.lint.script.script import FUNCTIONS, Function

_TEXT = "the scheduler steps before the optimizer: the first learning rate is skipped"

REAL_MISTAKES = 10
#: without these words there is nothing to check
NEEDS = (({"backward("}, re.compile(r"optim", re.IGNORECASE)), {"step("})


def check(context: Context) -> Iterator[Hit]:
    seen: set[ast.AST] = set()
    for loop in (*context.loops.training, *context.loops.of_kind("epoch")):
        # of the loop's body, not of its header
        does = [e for e in context.loops.does(loop) if any(context.script.contains(s, e.top) for s in loop.body)]
        steps = [n for n, e in enumerate(does) if e.kind in STEPS]
        if not steps:
            continue
        for place, event in enumerate(does):
            if event.kind != "schedule" or event.call in seen:
                continue
            # in branches that exclude each other, each has an order of its own
            mine = [n for n in steps if not does[n].excludes(event)]
            branches = {b for b in event.branches if not _is_about_itself(b, event)}
            if not mine or mine[0] < place or not branches <= set(does[mine[0]].branches):
                continue
            role = _role(context, event)
            named = not role or (not role.of_torch and bool(context.frameworks))
            if named:
                continue
            inner = context.script.loops_around(event.top)
            if inner and inner[0] is not loop:  # a small loop of its own that winds the schedule forward
                continue
            seen.add(event.call)
            related = ((does[mine[0]].call, "the optimizer's step"),)
            if role.of_another:
                yield Hit(event.call, f"{_TEXT}, if it is one of torch", "possible", "info", related)
            else:
                certain = event.call is event.top and role.of_torch
                yield Hit(event.call, _TEXT, "certain" if certain else "likely", related=related)
    yield from _in_a_method(context, seen)


def _is_about_itself(branch: tuple[ast.AST, bool], event: TrainingEvent) -> bool:
    """`if scheduler: scheduler.step()`, `if scheduler is not None`: no question about the time."""
    at, held = branch
    owner = event.receiver
    test = at.test if isinstance(at, (ast.If, ast.IfExp)) else None
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot):
        test = test.left
    return held and test is not None and owner is not None and ast.dump(test) == ast.dump(owner)


def _in_a_method(context: Context, seen: set[ast.AST]) -> Iterator[Hit]:
    """A function without a loop goes backward, steps the schedule and then the optimizer; or only steps both."""
    script = context.script
    function: Function
    for function in script.all(*FUNCTIONS) if context.events.of("schedule") else ():
        does = context.loops.does(function)
        own = [e for e in does if script.function_of(e.top) is function and not script.loops_around(e.top)]
        steps = [n for n, e in enumerate(own) if e.kind in STEPS and not Events.managed(e)]
        back = [n for n, e in enumerate(own) if e.kind == "backward"]
        if not steps or (back and back[0] > steps[0]):
            continue
        steps_only = not back
        if steps_only:
            own = [e for e in own if e.call is e.top]
            steps = [n for n, e in enumerate(own) if e.kind in STEPS]
        for event in own[: steps[0]] if steps else ():
            if event.kind != "schedule" or event.call in seen or script.loops_around(event.call):
                continue
            if not all(_is_about_itself(b, event) for b in event.branches):
                continue
            role = _role(context, event)
            if role and (role.of_torch or not context.frameworks):
                seen.add(event.call)
                sure = role.of_torch or not (steps_only or role.of_another)
                yield Hit(
                    event.call,
                    _TEXT,
                    "likely" if sure else "possible",
                    severity=None if sure else "info",
                    related=((own[steps[0]].call, "the optimizer's step"),),
                )


def _role(context: Context, event: TrainingEvent) -> Role:
    """A scheduler of torch, stepped without an epoch, or what has the role of one."""
    call, owner = event.call, event.receiver
    if not isinstance(call, ast.Call) or call.args or call.keywords or owner is None:
        return Role()
    return context.roles.scheduler(owner)
