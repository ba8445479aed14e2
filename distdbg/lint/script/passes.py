"""Find what runs through a loader again and again: the loop around it, here or in a caller, or a restart."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from distdbg.lint.rule import Context
from distdbg.lint.script.loops import LOADER, for_evaluation
from distdbg.lint.script.script import Loop, names_in


def repeats(context: Context, loop: ast.AST) -> Loop | None:
    """The innermost loop around this one, in its function or around a call of it."""
    for way in context.values.ways_to(loop, deepest=4):
        around = context.script.loops_around(way)
        if around:
            return around[0]
    return None


def restarts(context: Context) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Each `iter(loader)` that begins a new pass when one has ended, and the loader."""
    script = context.script
    for call in script.calls("iter"):
        if not call.args or script.call_names[call] != "iter" or not is_loader(call.args[0]):
            continue
        function, parent = script.function_of(call), script.parents[call]
        if function is not None and for_evaluation(function.name):
            continue
        if isinstance(parent, ast.Call) and script.call_names[parent] == "next":
            continue  # one batch
        if _after_the_last_batch(context, call) or _in_a_loop_that_asks(context, call):
            yield call, call.args[0]


def _after_the_last_batch(context: Context, call: ast.Call) -> bool:
    handlers = (o for o in context.script.above(call) if isinstance(o, ast.ExceptHandler))
    return any(h.type is None or "StopIteration" in names_in(h.type) for h in handlers)


def _in_a_loop_that_asks(context: Context, call: ast.Call) -> bool:
    """`if i % len(loader) == 0: batches = iter(loader)`, with a `next(batches)` in the same loop."""
    loop = next(iter(context.script.loops_around(call)), None)
    guarded = loop is not None and any(
        isinstance(o, ast.If) for o in context.script.above(call) if context.script.contains(loop, o)
    )
    return guarded and any(context.script.call_names[c] == "next" for c in context.script.within(loop, ast.Call))  # type: ignore[arg-type]


def is_loader(node: ast.expr) -> bool:
    """By its words, a loader, and not one for evaluation."""
    words = names_in(node)
    return any(LOADER.search(w) for w in words) and not any(map(for_evaluation, words))
