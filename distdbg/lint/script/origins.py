"""Trace what an expression was made of, hop by hop."""

from __future__ import annotations

import ast

from distdbg.lint.rule import Context

_MOST = 32


def made_of(context: Context, data: ast.expr) -> list[ast.AST]:
    """The expression, those that its names were assigned from, and the classes that are called in them."""
    script, values = context.script, context.values
    found: list[ast.AST] = [data]
    for part in found:  # grows meanwhile
        moves = [c for c in script.within(part, ast.Call) if script.call_names[c].endswith((".to", ".cuda"))]
        devices = {n for move in moves for given in move.args for n in script.within(given, ast.Name, ast.Attribute)}
        named = (n for n in script.within(part, ast.Name, ast.Attribute) if n not in devices)  # data is of no device
        assigned = sorted({a for n in named for a in values.assignments(n)}, key=script.begin.__getitem__)
        calls = script.within(part, ast.Call) if not isinstance(part, ast.ClassDef) else []
        classes = (made for call in calls if (made := values.class_named(call.func)) is not None)
        for one in (*(a.value for a in assigned), *classes):
            if one not in found and len(found) < _MOST:
                found.append(one)
    return found


def with_values(context: Context, expression: ast.expr) -> list[ast.expr]:
    """The expression, and all values of the variables in it."""
    names = context.script.within(expression, ast.Name, ast.Attribute)
    return [expression, *(value for name in names for value in context.values.bound(name))]
