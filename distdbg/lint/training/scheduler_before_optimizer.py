"""The scheduler steps before the optimizer: the first learning rate is skipped."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.events import STEPS, TrainingEvent

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
            if event.kind != "schedule" or not _plain(context, event) or event.branches or event.call in seen:
                continue
            inner = context.script.loops_around(event.top)
            if inner and inner[0] is not loop:  # a small loop of its own that winds the schedule forward
                continue
            seen.add(event.call)
            yield Hit(
                event.call,
                "the scheduler steps before the optimizer: the first learning rate is skipped",
                "certain" if event.call is event.top else "likely",
                related=((does[steps[0]].call, "the optimizer's step"),),
            )


def _plain(context: Context, event: TrainingEvent) -> bool:
    """A scheduler of torch, stepped without an epoch."""
    call, owner = event.call, event.receiver
    if not isinstance(call, ast.Call) or call.args or call.keywords or owner is None:
        return False
    sites = context.values.sites(owner, "scheduler")
    return bool(sites) and all(".lr_scheduler." in context.script.call_names[s] for s in sites)
