"""Gradients of several micro-batches are added up, and nothing divides by their number."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.accumulation import ACCUMULATES, Accumulation, accumulations
from distdbg.lint.script.events import carrier
from distdbg.lint.script.loops import for_evaluation
from distdbg.lint.script.script import last_word, names_in

#: a sum is meant, or something else divides
UNLESS = re.compile(
    r"reduction\s*=\s*[\"']sum|multiply_grads|div_\(|\.mul_\(|scale_loss|loss_scale|grad\s*/=", re.IGNORECASE
)
#: these divide by themselves
_DIVIDE_THEMSELVES = {"accelerate", "trainer", "deepspeed"}

#: without these words there is nothing to check
NEEDS = ({"backward("},)


def check(context: Context) -> Iterator[Hit]:
    if context.frameworks & _DIVIDE_THEMSELVES:
        return
    for one in accumulations(context):
        if one.guard is None or not any(ACCUMULATES.search(w) for w in _words(context, one.guard.test)):
            continue
        if _is_divided(context, one):
            continue
        yield Hit(
            one.backward.top,
            "gradients are added up over several batches, and the loss is not divided by their number",
            related=((one.guard, "the step comes every few batches"),),
        )


def _words(context: Context, test: ast.expr) -> set[str]:
    """Of the test, and of what its variable was made of."""
    operand = test.operand if isinstance(test, ast.UnaryOp) else test
    bound = context.values.bound(operand) if isinstance(operand, ast.Name) else []
    return names_in(test).union(*map(names_in, bound))


def _is_divided(context: Context, one: Accumulation) -> bool:
    """By a division of the loss where it goes backward, or by any in a function that is called on the way."""
    script, call = context.script, one.backward.call
    kept = carrier(call) if isinstance(call, ast.Call) else None
    for node in script.within(one.place, ast.BinOp, ast.Call, ast.AugAssign):
        if _divides(node) and (kept is None or _of_the_loss(context, node, kept)):
            return True
    for place in context.loops.reached(one.place):
        if not for_evaluation(place.name) and any(
            _divides(n) for n in script.within(place, ast.BinOp, ast.Call, ast.AugAssign)
        ):
            return True
    return False


def _of_the_loss(context: Context, node: ast.AST, kept: str) -> bool:
    """Assigned to what goes backward, part of it, or by a number of accumulation."""
    statement = context.script.statement_of(node)
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    words = {last_word(t) for t in targets if t is not None}
    by = getattr(node, "right", None) or getattr(node, "value", None) or node
    return (
        kept in words
        or "backward" in names_in(statement)
        or ("len" not in names_in(by) and any(ACCUMULATES.search(w) for w in names_in(by)))
        or any(re.search("loss", w, re.IGNORECASE) for w in words)
    )


def _divides(node: ast.AST) -> bool:
    """A division, or a product with a factor that was one: `loss * scale`."""
    match node:
        case ast.BinOp(op=ast.Div()) | ast.AugAssign(op=ast.Div()):
            return True
        case ast.Call(func=ast.Attribute(attr="div" | "divide" | "true_divide")):
            return True
        case ast.BinOp(op=ast.Mult()) | ast.Call(func=ast.Attribute(attr="mul" | "multiply")):
            return any(re.search(r"accum|inv|scale|weight", w) for w in names_in(node))
    return False
