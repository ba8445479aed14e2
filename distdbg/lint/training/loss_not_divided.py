"""Gradients of several micro-batches are added up, and nothing divides by their number."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.accumulation import ACCUMULATES, accumulations
from distdbg.lint.script.script import names_in

#: a sum is meant, or something else divides
UNLESS = re.compile(
    r"reduction\s*=\s*[\"']sum|multiply_grads|div_\(|\.mul_\(|torch\.div|scale_loss|loss_scale|/=", re.IGNORECASE
)

#: without these words there is nothing to check
NEEDS = ({"backward("},)


def check(context: Context) -> Iterator[Hit]:
    if context.frameworks:
        return
    for one in accumulations(context):
        if one.guard is None or not any(ACCUMULATES.search(w) for w in names_in(one.guard.test)):
            continue
        places: list[ast.AST] = [one.loop, *context.loops.reached(one.loop)]
        if any(_divides(n) for place in places for n in context.script.within(place, ast.BinOp, ast.Call)):
            continue
        yield Hit(
            one.backward.top,
            "gradients are added up over several batches, and the loss is not divided by their number",
            related=((one.guard, "the step comes every few batches"),),
        )


def _divides(node: ast.BinOp | ast.Call) -> bool:
    """A division, or a product with a factor that was one: `loss * scale`."""
    match node:
        case ast.BinOp(op=ast.Div()) | ast.Call(func=ast.Attribute(attr="div" | "divide" | "true_divide")):
            return True
        case ast.BinOp(op=ast.Mult()) | ast.Call(func=ast.Attribute(attr="mul" | "multiply")):
            return any(re.search(r"accum|inv|scale|weight", w) for w in names_in(node))
    return False
