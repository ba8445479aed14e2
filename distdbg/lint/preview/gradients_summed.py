"""Gradients that are summed over the ranks by hand and never divided by their number."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.script import LOOPS, argument, names_in

#: without these words there is nothing to check
NEEDS = ({"grad"}, {"all_reduce("}, {"backward("})

#: words of a division by the number of ranks, of a mean, or of a loss that has it already
_DIVIDES = re.compile(
    r"world_?size|n_?(?:gpus?|ranks|workers|procs)|num_(?:gpus|replicas|processes|tasks)|AVG|size$", re.I
)


def check(context: Context) -> Iterator[Hit]:
    script = context.script
    if not context.distributed or context.frameworks:
        return
    for call in script.calls("all_reduce"):
        if not script.call_names[call].startswith("torch.distributed."):
            continue
        given = argument(call, 0, "tensor")
        if not _is_gradient(given) or argument(call, 2, "group") is not None:
            continue
        op = argument(call, 1, "op")
        if op is not None and "SUM" not in names_in(op):
            continue
        function = script.function_of(call)
        if function is None or not any(isinstance(o, LOOPS) for o in script.above(call)):
            continue
        places = [function, *(f for c in context.values.callers.get(function, []) if (f := script.function_of(c)))]
        if any(_divides(context, place) for place in places) or not context.values.callers.get(function):
            continue
        yield Hit(call, "gradients are summed over all ranks and not divided: the step grows with the number of ranks")


def _is_gradient(node: ast.expr | None) -> bool:
    """`p.grad`, `p.grad.data`."""
    if isinstance(node, ast.Attribute) and node.attr == "data":
        node = node.value
    return isinstance(node, ast.Attribute) and node.attr == "grad"


def _divides(context: Context, place: ast.AST) -> bool:
    for node in context.script.within(place, ast.BinOp, ast.AugAssign, ast.Call):
        if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, (ast.Div, ast.Mult)):
            return True
        if isinstance(node, ast.Call) and context.script.last_names[node] in (
            "div_",
            "div",
            "mul_",
            "mul",
            "true_divide",
        ):
            return True
    return any(_DIVIDES.search(w) for w in names_in(place))
