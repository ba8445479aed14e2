"""Find the constants that a factory is given on the ways to its calls, all of them or those that a value comes from."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from itertools import islice

from distdbg.lint.rule import Context
from distdbg.lint.script.given import Given, given_by, given_constants
from distdbg.lint.script.kinds import WRAPPERS
from distdbg.lint.script.loaders import samplers_given
from distdbg.lint.script.script import Function

#: callers of callers whose constants are followed
_DEEPEST = 3
#: expressions that are followed for one value, and ways to a factory
_MOST = 64


def constants_behind(context: Context, value: ast.expr, factory: Function) -> list[Given]:
    """The constants of each call of the factory that `value` is a result of; empty if none is in sight."""
    todo: deque[tuple[ast.expr, Given]] = deque([(value, {})])
    found: list[Given] = []
    for _ in range(_MOST):
        if not todo:
            return found
        node, given = todo.popleft()
        if isinstance(node, ast.Call):
            for function in context.values.callees(node):
                inner = given_constants(context.script, function, node, given)
                if function is factory:
                    found.append(inner)
                else:
                    todo += [(returned, inner) for returned in _returned(context, function)]
        for source in _sources(context, node):
            same = context.script.function_of(source) is context.script.function_of(node)
            todo.append((source, given if same else {}))
    return []


def _returned(context: Context, function: Function) -> list[ast.expr]:
    returns = (r for r in context.script.within(function, ast.Return) if context.script.function_of(r) is function)
    return [returned.value for returned in returns if returned.value is not None]


def _sources(context: Context, node: ast.expr) -> Iterator[ast.expr]:
    """What an expression takes its value from, one step back, other than the results of functions."""
    script, values = context.script, context.values
    if isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)
    elif isinstance(node, ast.BoolOp):
        yield from node.values
    elif isinstance(node, ast.Call) and values.kind(node) == "loader":
        yield from samplers_given(node)
    elif isinstance(node, ast.Call) and script.last_names[node] in WRAPPERS:
        yield from node.args[:1]
    elif isinstance(node, (ast.Name, ast.Attribute)):
        yield from values.bound(node)
        function = script.function_of(node)
        if isinstance(node, ast.Name) and function is not None:
            given = (given_by(function, call, node.id) for call in values.callers.get(function, []))
            yield from (one for one in given if one is not None)


def constants_given(context: Context, factory: Function) -> list[Given]:
    """The constants that the factory is given on each way that leads to it."""
    return list(islice(_constants(context, factory, _DEEPEST), _MOST))


def _constants(context: Context, function: Function, depth: int) -> Iterator[Given]:
    for call in context.values.callers.get(function, []):
        outer = context.script.function_of(call)
        known = list(_constants(context, outer, depth - 1)) if outer is not None and depth else []
        yield from (given_constants(context.script, function, call, given) for given in known or [{}])
