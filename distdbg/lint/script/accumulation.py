"""Find gradient accumulation: several backward passes before one step, and how the code distinguishes them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from distdbg.lint.rule import Context
from distdbg.lint.script.events import STEPS, Events, TrainingEvent
from distdbg.lint.script.script import LOOPS, Loop, names_in

ACCUMULATES = re.compile(r"accum|grad_acc|micro", re.IGNORECASE)


@dataclass(frozen=True)
class Accumulation:
    """`guard` is the `if` that lets the step happen; None where a loop of its own does the backward passes."""

    loop: Loop
    backward: TrainingEvent
    guard: ast.If | None = None


def accumulations(context: Context) -> Iterator[Accumulation]:
    """Every accumulation that the file shows with its step."""
    yield from _by_modulo(context)
    yield from _by_inner_loop(context)


def _by_modulo(context: Context) -> Iterator[Accumulation]:
    """`loss.backward()` in every round, `if (i + 1) % n == 0: optimizer.step()`."""
    for loop in context.loops.training:
        does = context.loops.does(loop)
        back = [e for e in does if e.kind == "backward" and not Events.managed(e)]
        steps = [e for e in does if e.kind in STEPS and not Events.managed(e)]
        if not back or not steps:
            continue
        guards = [{n for n, held in s.branches if held and isinstance(n, ast.If) and _every_nth(n.test)} for s in steps]
        common = set.intersection(*guards)
        free = [e for e in back if not any(node in common for node, _ in e.branches)]
        if common and len(free) == len(back):
            yield Accumulation(loop, free[0], next(iter(common)))


def _every_nth(test: ast.expr) -> bool:
    """A remainder of a counter that has to do with accumulation, or by a plain number above one; or such a counter."""
    if isinstance(test, ast.Compare) and any(ACCUMULATES.search(w) for w in names_in(test)):
        return True
    for node in ast.walk(test):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            words = names_in(node.right)
            if any(ACCUMULATES.search(w) for w in words) or not words:
                return True
    return False


def _by_inner_loop(context: Context) -> Iterator[Accumulation]:
    """A loop that only goes backward, inside a loop that steps after it."""
    script = context.script
    for loop in script.all(*LOOPS):
        kinds = [e for e in context.loops.does(loop) if e.kind in ("backward", "zero", *STEPS)]
        back = [e for e in kinds if e.kind == "backward" and not Events.managed(e)]
        if not back or len(back) != len(kinds) or context.loops.kinds[loop] == "epoch":
            continue
        if any(script.contains(inner, back[0].top) for inner in script.within(loop, *LOOPS) if inner is not loop):
            continue
        outer = next((o for o in script.loops_around(loop)), None)
        after = [e for e in context.loops.does(outer) if script.begin[e.top] >= script.end[loop]] if outer else []
        if any(e.kind in STEPS and not Events.managed(e) for e in after):
            yield Accumulation(loop, back[0])
