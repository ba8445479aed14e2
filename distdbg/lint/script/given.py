"""Find the constants that a call gives to a function, and decide the tests that these constants answer."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from distdbg.lint.script.script import Function, Script

Given = Mapping[str, object]


def given_constants(script: Script, function: Function, call: ast.Call, outer: Given) -> dict[str, object]:
    """Parameters whose value this call fixes: `train_mode=False`, or a default of True, False or None.

    `outer` are the constants of the function that contains the call.
    """
    arguments = function.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    found = _defaults(function)
    values = list(call.args)
    if any(isinstance(v, ast.Starred) for v in values) or any(k.arg is None for k in call.keywords):
        return {}
    if names[:1] in (["self"], ["cls"]):
        names = names[1:]
    pairs = [*zip(names, values, strict=False), *((k.arg, k.value) for k in call.keywords if k.arg)]
    for name, value in pairs:
        found.pop(name, None)
        if isinstance(value, ast.Constant) and isinstance(value.value, (bool, str, type(None))):
            found[name] = value.value
        elif isinstance(value, ast.Name) and value.id in outer:
            found[name] = outer[value.id]
    if not found:
        return found  # most calls
    bound = script.names_bound_in(function)
    return {name: value for name, value in found.items() if name not in bound}


def given_by(function: Function, call: ast.Call, name: str) -> ast.expr | None:
    """What this call of the function gives to the parameter of this name; None where that is not in sight."""
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args) if a.arg not in ("self", "cls")]
    if any(isinstance(v, ast.Starred) for v in call.args):
        return None
    pairs = (*zip(names, call.args, strict=False), *((k.arg, k.value) for k in call.keywords))
    return next((value for its, value in pairs if its == name), None)


def parameter_of(function: Function, call: ast.Call, given: ast.expr) -> str:
    """The name of the parameter that gets this argument of the call; empty if that is not in sight."""
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args) if a.arg not in ("self", "cls")]
    if any(isinstance(v, ast.Starred) for v in call.args):
        return ""
    pairs = (*zip(names, call.args, strict=False), *((k.arg, k.value) for k in call.keywords))
    return next((name for name, value in pairs if name and value is given), "")


def _defaults(function: Function) -> dict[str, object]:
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(plain[len(plain) - len(arguments.defaults) :], arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    return {
        one.arg: value.value
        for one, value in pairs
        if isinstance(value, ast.Constant) and isinstance(value.value, (bool, type(None)))
    }


def decided(test: ast.expr, given: Given) -> bool | None:
    """What a test is with these constants; None where it depends on more."""
    match test:
        case ast.Name(id=name) if name in given:
            return bool(given[name])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = decided(operand, given)
            return None if inner is None else not inner
        case ast.Compare(left=ast.Name(id=name), ops=[op], comparators=[ast.Constant(value=value)]) if name in given:
            if isinstance(op, (ast.Eq, ast.Is)):
                return given[name] == value
            return given[name] != value if isinstance(op, (ast.NotEq, ast.IsNot)) else None
        case ast.BoolOp(op=op, values=values):
            parts = [decided(value, given) for value in values]
            ends = isinstance(op, ast.Or)  # what one part alone decides
            return ends if ends in parts else None if None in parts else not ends
    return None
