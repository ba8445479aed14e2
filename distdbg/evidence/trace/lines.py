"""Find the line of a call in the source: a trace knows only the function around it, and the name that is called."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from distdbg.evidence.trace.causal_mask import ATTENTION, gives_causal_mask
from distdbg.evidence.trace.places import TracePlace

#: Called without a name that a trace has: these read a tensor's value.
_READS = ("float", "int", "bool", "complex")
_MADE_OF = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def lines_of(source: str, place: TracePlace, kind: str = "") -> tuple[int, ...]:
    """Every line of that function with such a call; none where the source is another, or cannot be read."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    scope = _scope(tree, place)
    if scope is None:
        return ()
    if kind == "masked":
        return _masked(tree, scope, place)
    names = (place.callee,) if place.callee else _READS if kind == "wait" else ()
    return tuple(sorted({line for call in _calls(scope) if (line := _line(call, names))}))


def _masked(tree: ast.Module, scope: ast.AST, place: TracePlace) -> tuple[int, ...]:
    """The line of the call, where it is known, if its mask is surely causal; else of all such calls, if all are."""
    calls = [call for call in _calls(scope) if _line(call, (ATTENTION,))]
    if place.at:
        calls = [call for call in calls if call.lineno <= place.at <= (call.end_lineno or call.lineno)]
    if not calls or not all(gives_causal_mask(call, tree) for call in calls):
        return ()
    return (place.at,) if place.at else tuple(sorted({_line(call, (ATTENTION,)) or 0 for call in calls}))


def _scope(tree: ast.Module, place: TracePlace) -> ast.AST | None:
    """The function of this name that the line is in; of a lambda or a comprehension, itself."""
    name = place.function.rpartition(".")[2]
    if name == "<module>":
        return tree
    if name.startswith("<"):
        inner = [n for n in ast.walk(tree) if isinstance(n, _MADE_OF) and n.lineno == place.line]
        return inner[0] if len(inner) == 1 else None
    fits = [
        n for n in ast.walk(tree)
        if isinstance(n, _FUNCTIONS) and n.name == name and _first(n) <= place.line <= (n.end_lineno or n.lineno)
    ]  # fmt: skip
    return max(fits, key=_first, default=None)


def _first(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Python counts a function's decorators to it."""
    return min([function.lineno, *(d.lineno for d in function.decorator_list)])


def _calls(scope: ast.AST) -> Iterator[ast.Call]:
    """Those of this function's own body: not of functions that are made in it."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, (*_FUNCTIONS, ast.Lambda)):
            continue
        if isinstance(child, ast.ClassDef) and not isinstance(scope, ast.Module):
            continue
        if isinstance(child, ast.Call):
            yield child
        yield from _calls(child)


def _line(call: ast.Call, names: tuple[str, ...]) -> int | None:
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr in names and names is not _READS:
        return function.end_lineno
    return call.lineno if isinstance(function, ast.Name) and function.id in names else None
