"""Find gradient accumulation: several backward passes before one step, and how the code distinguishes them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from distdbg.lint.rule import Context
from distdbg.lint.script.events import STEPS, Events, TrainingEvent
from distdbg.lint.script.script import LOOPS, Loop, names_in

ACCUMULATES = re.compile(
    r"accum|grad_acc|micro|(?:^|_)acc_(?:steps?|iters?|grads?)|(?:^|_)update_(?:freq|every|interval)|(?:^|_)iter_size|"
    r"virtual_batch|sync_grad|steps_per_update",
    re.IGNORECASE,
)
#: an object that goes backward with the loss that it is given, and leaves accumulation to its caller
_FABRIC = re.compile(r"fabric", re.IGNORECASE)
_ACCELERATOR = re.compile(r"accelerator", re.IGNORECASE)


@dataclass(frozen=True)
class Accumulation:
    """`place`: the loop, or the function, that the backward pass is in.

    `guard` is the `if` that lets the step happen, or leaves before it; None where a loop of its own does the backward
    passes.
    """

    place: ast.AST
    backward: TrainingEvent
    guard: ast.If | None = None


def accumulations(context: Context) -> Iterator[Accumulation]:
    """Every accumulation that the file shows with its step."""
    yield from _by_a_counter(context)
    yield from _by_inner_loop(context)


def _by_a_counter(context: Context) -> Iterator[Accumulation]:
    """`loss.backward()` in every round, `if (i + 1) % n == 0: optimizer.step()`."""
    for loop in context.loops.training:
        yield from _guarded(context, loop, context.loops.does(loop))


def _guarded(context: Context, place: ast.AST, does: list[TrainingEvent]) -> Iterator[Accumulation]:
    back = [e for e in does if e.kind == "backward" and not by_itself(context, e)]
    steps = [e for e in does if e.kind in STEPS and not by_itself(context, e)]
    if not back or not steps:
        return
    guards = [_guards(context, s) for s in steps]
    every = set.union(*guards)
    free = [e for e in back if _guards(context, e).isdisjoint(every)]
    if all(guards) and len(free) == len(back):
        before = [e for e in free if context.script.begin[e.top] < context.script.begin[steps[0].top]]
        common = set.intersection(*guards) or every  # in two branches each step may have an `if` of its own
        yield Accumulation(place, (before or free)[-1], min(common, key=context.script.begin.__getitem__))


def by_itself(context: Context, event: TrainingEvent) -> bool:
    """Done by an object that looks after accumulation itself."""
    if not Events.managed(event) or event.receiver is None:
        return False
    by = ast.unparse(event.receiver)
    return not (_FABRIC.search(by) or (_ACCELERATOR.search(by) and not accelerator_accumulates(context)))


def accelerator_accumulates(context: Context) -> bool:
    """Is an Accelerator told how many batches make a step? Else it leaves accumulation to its caller."""
    script = context.script
    if script.calls("accumulate", "no_sync"):
        return True
    made = context.values.of_kind("accelerator")
    return any(k.arg is not None and "accumulation" in k.arg for site in made for k in site.keywords)


def _guards(context: Context, event: TrainingEvent) -> set[ast.If]:
    """The `if`s around it that let this happen every so many batches."""
    return {n for n, held in event.branches if held and isinstance(n, ast.If) and _every_nth(context, n.test)}


def _every_nth(context: Context, test: ast.expr) -> bool:
    """A remainder of a counter that has to do with accumulation, or by a plain number above one; or such a counter."""
    if isinstance(test, ast.Compare) and any(ACCUMULATES.search(w) for w in names_in(test)):
        return True
    words = map(names_in, _divisors(context, test))
    return any(not its or any(ACCUMULATES.search(w) for w in its) for its in words)


def by_a_number(context: Context, test: ast.expr) -> bool:
    """`(i + 1) % 4 == 0`: how many batches are added up is written as a number."""
    return any(not names_in(divisor) for divisor in _divisors(context, test))


def _divisors(context: Context, test: ast.expr) -> Iterator[ast.expr]:
    """By what the remainders are that a test asks for, those of its variable included."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    parts = [test, *(v for v in context.values.bound(test) if isinstance(test, ast.Name))]
    for node in (inner for part in parts for inner in ast.walk(part)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            yield node.right


def _by_inner_loop(context: Context) -> Iterator[Accumulation]:
    """A loop that only goes backward, inside a loop or a function that steps after it."""
    script = context.script
    for loop in script.all(*LOOPS):
        kinds = [e for e in context.loops.does(loop) if e.kind in ("backward", "zero", *STEPS)]
        back = [e for e in kinds if e.kind == "backward" and not by_itself(context, e)]
        if not back or len(back) != len(kinds) or context.loops.kinds[loop] == "epoch":
            continue
        if any(script.contains(inner, back[0].top) for inner in script.within(loop, *LOOPS) if inner is not loop):
            continue
        outer: ast.AST | None = next((o for o in script.loops_around(loop)), None)
        if outer is None and any(ACCUMULATES.search(w) for w in names_in(_header(loop))):
            outer = script.function_of(loop)
        after = [e for e in context.loops.does(outer) if script.begin[e.top] >= script.end[loop]] if outer else []
        if any(e.kind in STEPS and not by_itself(context, e) for e in after):
            yield Accumulation(loop, back[0])


def _header(loop: Loop) -> ast.expr:
    return loop.test if isinstance(loop, ast.While) else loop.iter
