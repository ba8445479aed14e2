"""A value that carries the autograd graph is kept from step to step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.graphs import GraphCarriers
from distdbg.lint.script.kept import keeping
from distdbg.lint.script.script import Loop

REAL_MISTAKES = 22
NEEDS = (re.compile(r"^(?:\w+_)?backward\($", re.IGNORECASE),)


def check(context: Context) -> Iterator[Hit]:
    script, graphs = context.script, GraphCarriers(context)
    for node in script.all(ast.Call, ast.AugAssign, ast.Assign) if graphs.backward_of else ():
        value, target = keeping(node)
        backward = graphs.carried(value) if value is not None else None
        if value is None or target is None or backward is None or context.loops.without_grad(node):
            continue
        key = context.values.key(target)
        loop = _step_loop(context, node)
        if loop is None or key in graphs.summed or _is_summed(context, graphs, target):
            continue
        if _outlives(context, loop, target):
            certain = isinstance(value, ast.Name) and not isinstance(node, ast.Assign)
            yield Hit(
                node,
                f"{script.source(value)[:60]} is kept in {script.source(target)} with its graph: "
                "memory grows with every step",
                "certain" if certain else "likely",
                related=((backward, "it carries a graph"),),
            )


def _step_loop(context: Context, node: ast.AST) -> Loop | None:
    """The loop around the node, or around a call that leads to it, each round of which makes at least one step.

    Around a loop over micro-batches this is the loop that steps.
    """
    for way in context.values.ways_to(node, deepest=3):
        loops = context.script.loops_around(way)
        if loops:
            batches = (loop for loop in reversed(loops) if context.loops.kinds[loop] == "batch")
            steps = (loop for loop in loops if context.loops.trains(loop))
            return next(batches, None) or next(steps, loops[0])
    return None


def _outlives(context: Context, loop: Loop, target: ast.expr) -> bool:
    """It is not made anew inside the loop, nor is what holds it."""
    script, values = context.script, context.values
    if isinstance(target, (ast.Subscript, ast.Attribute)) and not _is_self(target.value):
        return _outlives(context, loop, target.value)
    key = values.key(target)
    if key is None:
        return False
    made_by_the_function = isinstance(target, ast.Name) and not script.contains(loop, target)
    if made_by_the_function:
        return False  # a variable of a function that the loop calls
    for name in script.within(loop, ast.Name, ast.Attribute):
        if isinstance(name.ctx, ast.Store) and values.key(name) == key:
            statement = script.statement_of(name)
            if not isinstance(statement, ast.AugAssign) and keeping(statement)[0] is None:
                return False
    return True


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _is_summed(context: Context, graphs: GraphCarriers, target: ast.expr) -> bool:
    """What is kept goes backward as a whole: `losses.append(loss)` … `sum(losses).backward()`."""
    while isinstance(target, (ast.Subscript, ast.Attribute)) and not _is_self(target.value):
        target = target.value
    script, key = context.script, context.values.key(target)
    sums: list[ast.AST] = [*graphs.backward_of.values()]
    sums += [a.value for a in script.all(ast.Assign) if set(map(context.values.key, a.targets)) & graphs.summed]
    parts = (name for one in sums for name in script.within(one, ast.Name, ast.Attribute))
    return any(context.values.key(part) == key for part in parts)
