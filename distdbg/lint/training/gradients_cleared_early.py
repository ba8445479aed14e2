"""Gradients are cleared before the step that should use them: between backward and step, or by each micro-batch."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.accumulation import accumulations
from distdbg.lint.script.events import STEPS, Events, TrainingEvent
from distdbg.lint.script.script import LOOPS, names_in

REAL_MISTAKES = 2
#: without these words there is nothing to check
NEEDS = ({"backward("}, {"step("}, {"zero_grad("})
_TEXT = "every micro-batch clears the gradients, and the step after several of them uses those of the last one only"
_NOTHING_LEFT = (
    "this clears the gradients between backward and step: the step has none, and the weights stay as they are"
)


def check(context: Context) -> Iterator[Hit]:
    yield from _by_a_counter(context)
    yield from _by_an_inner_loop(context)
    yield from _before_the_step(context)


def _by_a_counter(context: Context) -> Iterator[Hit]:
    """`zero_grad()` and `backward()` in every round, and the step under `if (i + 1) % n == 0`."""
    script = context.script
    for one in accumulations(context):
        does = context.loops.does(one.place)
        steps = [e for e in does if e.kind in STEPS]
        if one.guard is None or not steps or Events.managed(one.backward):
            continue
        for clear in _clears(context, does, steps):
            guarded = {node for node, _ in clear.branches} - {node for node, _ in one.backward.branches}
            behind = script.begin[clear.top] > script.begin[one.guard]
            if not guarded and not behind:
                related = ((one.backward.top, "adds to them"), (one.guard, "the step comes every few batches"))
                yield Hit(clear.call, _TEXT, related=related)
                break


def _by_an_inner_loop(context: Context) -> Iterator[Hit]:
    """A loop that clears and goes backward in each round, in a loop that steps after it."""
    script = context.script
    for loop in script.all(*LOOPS):
        does = context.loops.does(loop)
        back = [e for e in does if e.kind == "backward" and not Events.managed(e)]
        if not back or any(e.kind in STEPS for e in does) or "grad" in names_in(loop):
            continue
        outer = next(iter(script.loops_around(loop)), None) or script.function_of(loop)
        after = [e for e in context.loops.does(outer) if script.begin[e.top] >= script.end[loop]] if outer else []
        steps = [e for e in after if e.kind in STEPS and not Events.managed(e)]
        again = any(e.kind in ("backward", "zero") and steps and e in after[: after.index(steps[0])] for e in after)
        for clear in _clears(context, does, steps) if steps and not again else ():
            if not clear.branches and not back[0].branches:
                yield Hit(clear.call, _TEXT, related=((back[0].top, "adds to them"), (steps[0].top, "the step")))
                break


def _before_the_step(context: Context) -> Iterator[Hit]:
    """`loss.backward()`, `optimizer.zero_grad()`, `optimizer.step()`: the step has no gradients."""
    seen: set[ast.AST] = set()
    functions = [f for n in context.events.of("backward") if (f := context.script.function_of(n)) is not None]
    for place in (*context.loops.training, *dict.fromkeys(functions)):
        does = context.loops.does(place)
        for at, clear in enumerate(does):
            if clear.kind != "zero" or clear.receiver is None or clear.call in seen:
                continue
            step = next(
                (e for e in does[at + 1 :] if e.kind in (*STEPS, "backward", "zero") and not e.excludes(clear)), None
            )
            back = next((e for e in reversed(does[:at]) if e.kind in (*STEPS, "backward")), None)
            if step is None or step.kind not in STEPS or back is None or back.kind != "backward":
                continue
            same = clear.branches == back.branches and set(back.branches) <= set(step.branches)
            failed = any(isinstance(o, ast.ExceptHandler) for o in context.script.above(clear.call))
            if (
                not same
                or failed
                or clear not in _clears(context, [clear], [step])
                or not _one_round(context, back, step)
            ):
                continue
            seen.add(clear.call)
            yield Hit(clear.call, _NOTHING_LEFT, related=((back.top, "adds to them"), (step.top, "the step")))


def _one_round(context: Context, back: TrainingEvent, step: TrainingEvent) -> bool:
    """In the same loop and function, where nothing reads the gradients in between."""
    script = context.script
    if script.function_of(back.call) is not script.function_of(step.call) or Events.managed(step):
        return False
    same = script.loops_around(back.call)[:1] == script.loops_around(step.call)[:1]
    function = script.function_of(step.call)
    reads = (n for n in script.within(function or script.module_of(step.call), ast.Attribute) if n.attr == "grad")
    return same and not any(script.begin[back.call] < script.begin[n] < script.begin[step.call] for n in reads)


def _clears(context: Context, does: list[TrainingEvent], steps: list[TrainingEvent]) -> Iterator[TrainingEvent]:
    """What clears the very optimizer that steps."""
    mine = {context.values.key(e.receiver) for e in steps if e.receiver is not None}
    mine |= {context.values.key(a) for e in steps if isinstance(e.call, ast.Call) for a in e.call.args[:1]}
    for event in does:
        failed = any(isinstance(o, ast.ExceptHandler) for o in context.script.above(event.call))  # it begins anew
        if event.kind != "zero" or event.receiver is None or failed:
            continue
        if context.values.key(event.receiver) in mine - {None}:
            yield event
