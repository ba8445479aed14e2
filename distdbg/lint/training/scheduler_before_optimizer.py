"""The scheduler steps before the optimizer: the first learning rate is skipped."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from distdbg.findings import lint_entries
from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.events import Event
from distdbg.lint.script.script import Loop

DOCS = lint_entries("scheduler-before-optimizer")


def check(context: Context) -> Iterator[Hit]:
    seen: set[ast.AST] = set()
    for loop in (*context.loops.training, *context.loops.of_kind("epoch")):
        does = [e for e in context.loops.does(loop) if not _before(context, loop, e)]
        steps = [n for n, e in enumerate(does) if e.kind in ("step", "scaler_step")]
        if not steps:
            continue
        for number, event in enumerate(does[: steps[0]]):
            if event.kind != "schedule" or not _plain(context, event) or event.branches or event.call in seen:
                continue
            if not does[number + 1 :] or _stepped_for_resume(context, loop, event):
                continue
            seen.add(event.call)
            yield Hit(
                "scheduler-before-optimizer",
                "warning",
                "certain" if event.call is event.top else "likely",
                event.call,
                "the scheduler steps before the optimizer: the first learning rate is skipped",
                related=((does[steps[0]].call, "the optimizer's step"),),
            )


def _before(context: Context, loop: Loop, event: Event) -> bool:
    """In the loop's header, not in its body."""
    return not any(context.script.contains(s, event.top) for s in loop.body)


def _plain(context: Context, event: Event) -> bool:
    """A scheduler of torch, stepped without an epoch."""
    call, owner = event.call, event.receiver
    if not isinstance(call, ast.Call) or call.args or call.keywords or owner is None:
        return False
    sites = context.values.sites(owner, "scheduler")
    return bool(sites) and all(".lr_scheduler." in context.script.call_names[s] for s in sites)


def _stepped_for_resume(context: Context, loop: Loop, event: Event) -> bool:
    """A small loop of its own that winds the schedule forward."""
    inner = context.script.loops_around(event.top)
    return bool(inner) and inner[0] is not loop
