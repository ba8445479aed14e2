"""Find where a statement can be inserted so that it runs exactly as often as the statement below it."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from distdbg.lint.rule import Insert
from distdbg.lint.script.script import Script


def insert_above(script: Script, statement: ast.stmt, text: str) -> Insert | None:
    """The insertion of `text` above a statement and the comments that belong to it. None if no line begins with it."""
    lines = script.file_of(statement).lines
    first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])
    indentation = lines[statement.lineno - 1][: statement.col_offset]
    if indentation.strip() or (first > 1 and lines[first - 2].endswith("\\")):
        return None
    block = script.block_of(statement)
    place = block.index(statement)
    above = block[place - 1].end_lineno if place else getattr(script.parents[statement], "lineno", 0)
    while first - 1 > (above or 0) and lines[first - 2].startswith(f"{indentation}#"):
        first -= 1
    return Insert(first, text)


def can_leave(script: Script, statements: Sequence[ast.stmt]) -> bool:
    """Can one of these statements skip the next one of their block, other than by an exception?"""
    for statement in statements:
        for node in script.within(statement, ast.Return, ast.Break, ast.Continue):
            if script.function_of(node) is not script.function_of(statement):
                continue
            inner = script.loops_around(node)[:1] if isinstance(node, (ast.Break, ast.Continue)) else []
            if not any(script.contains(statement, loop) for loop in inner):
                return True
    return False
