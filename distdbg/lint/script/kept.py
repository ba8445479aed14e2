"""Tell what keeps a value that carries the autograd graph, and what frees it of the graph."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

#: methods and attributes that make data or numbers of a tensor: its graph ends there
ENDS = frozenset(("item", "detach", "detach_", "data", "tolist", "argmax"))
#: words of what has no graph
FREES = ENDS | frozenset((
    "numpy", "float", "int", "no_grad", "deepcopy", "len", "isnan",
    "isfinite", "isinf", "format", "str", "round", "reduce_value", "reduce_tensor", "shape", "device", "dtype",
))  # fmt: skip


#: what a loss, or a part of one, is called
LOSS = re.compile(r"loss|(?:^|_)(?:kl|ce|mse|bce|nll|err|error|reg)(?:_|$)", re.IGNORECASE)


def is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def terms(value: ast.expr) -> Iterator[ast.Name]:
    """The names that a sum of products is made of."""
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, ast.BinOp) and isinstance(one.op, (ast.Add, ast.Mult, ast.Div, ast.Sub)):
            todo += [one.left, one.right]
        elif isinstance(one, ast.Name):
            yield one


def keeping(node: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """(what is kept, where): `xs.append(v)`, `total += v`, `total = total + v`."""
    match node:
        case ast.Call(func=ast.Attribute(value=target, attr="append"), args=[value]):
            return value, target
        case ast.AugAssign(target=target, op=ast.Add(), value=value):
            return value, target
        case ast.Assign(
            targets=[ast.Name(id=name) as target], value=ast.BinOp(left=left, op=ast.Add(), right=right)
        ) if any(map(is_name, (left, right), (name, name))):
            return (right if is_name(left, name) else left), target
    return None, None
