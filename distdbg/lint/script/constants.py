"""Evaluate numbers that a file assigns to names once."""

from __future__ import annotations

import ast

from distdbg.lint.rule import Context

_DEEPEST = 5


def number(context: Context, node: ast.expr | None, depth: int = 0) -> float | None:  # noqa: PLR0911 -- one line a form
    """What an expression is worth if it is made of constants only; None where that is not certain."""
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            value_ = number(context, inner, depth)
            return None if value_ is None else -value_
        case ast.BinOp(left=left, op=op, right=right):
            return _combined(op, number(context, left, depth), number(context, right, depth))
        case ast.Call(func=ast.Name(id="int" | "float" | "round"), args=[inner], keywords=[]):
            return number(context, inner, depth)
        case ast.Name() if depth < _DEEPEST:
            return number(context, _bound(context, node), depth + 1)
    return None


def _combined(op: ast.operator, left: float | None, right: float | None) -> float | None:
    if left is None or right is None:
        return None
    match op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div() | ast.FloorDiv() if right:
            return left / right
    return None


def _bound(context: Context, name: ast.Name) -> ast.expr | None:
    """What the name is bound to, where that happens once in the file, by a plain assignment."""
    script, key = context.script, context.values.key(name)
    stores = [n for n in script.all(ast.Name) if n.id == name.id and not isinstance(n.ctx, ast.Load)]
    if len(stores) != 1 or context.values.key(stores[0]) != key:
        return None
    statement = script.parents.get(stores[0])
    return statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
