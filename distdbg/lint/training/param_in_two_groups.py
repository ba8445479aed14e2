"""Layers selected by a part of their name: the pattern of layer 1 is in the names of layers 10 to 19, too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.constants import number
from distdbg.lint.script.kinds import OPTIMIZER
from distdbg.lint.script.script import names_in

_TEN = 10

#: without these words there is nothing to check
NEEDS = (re.compile(rf"{OPTIMIZER.pattern}|^lr$"),)


def check(context: Context) -> Iterator[Hit]:
    if not context.values.of_kind("optimizer") and "lr" not in {k.arg for k in context.script.all(ast.keyword)}:
        return
    for test in context.script.all(ast.Compare, ast.Call):
        match test:
            case ast.Compare(left=ast.JoinedStr() as text, ops=[ast.In()], comparators=[ast.Name() as name]):
                pass
            case ast.Call(
                func=ast.Attribute(value=ast.Name() as name, attr="startswith"), args=[ast.JoinedStr() as text]
            ):
                pass
            case _:
                continue
        counter = _counter(text)
        if counter is None or not _counts_to_ten(context, test, counter) or not _chooses(context, test):
            continue
        if "param" in name.id or name.id in ("n", "name", "key", "k"):
            yield Hit(test, f"{context.script.source(text)} with {counter} = 1 is in the names of layers 10 to 19, too")


def _counter(text: ast.JoinedStr) -> str | None:
    """The `i` of f"layer.{i}", where nothing follows it."""
    match text.values:
        case [*before, ast.FormattedValue(value=ast.Name(id=name), conversion=-1, format_spec=None)] if before:
            last = before[-1]
            ends = isinstance(last, ast.Constant) and str(last.value)[-1:] in (".", "_", "r", "k", "h")
            return name if ends else None
    return None


def _counts_to_ten(context: Context, test: ast.AST, counter: str) -> bool:
    """It runs over a range that is not known to end before ten."""
    for outer in context.script.above(test):
        loops: list[ast.For | ast.comprehension] = [outer] if isinstance(outer, ast.For) else []
        loops += getattr(outer, "generators", [])
        for loop in loops:
            if isinstance(loop.target, ast.Name) and loop.target.id == counter:
                match loop.iter:
                    case ast.Call(func=ast.Name(id="range"), args=[*_, last]) if len(loop.iter.args) < 3:
                        end = number(context, last)
                        return end is None or end > _TEN
                return False
    return False


def _chooses(context: Context, test: ast.AST) -> bool:
    """The first that fits is taken, or whatever fits goes into a group; what a later one overwrites comes out right."""
    for outer in context.script.above(test):
        if isinstance(outer, ast.comprehension):
            return True
        if isinstance(outer, ast.If):
            last = outer.body[-1]
            if isinstance(last, (ast.Return, ast.Break)):
                return True
            return isinstance(last, ast.Expr) and "append" in names_in(last.value)
        if isinstance(outer, ast.stmt):
            return False
    return False
