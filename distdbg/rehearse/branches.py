"""Find the branch that a read of a device value steers, in the text of the script."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from distdbg.plain_text import first_words

_MOST_WORDS = 80


@dataclass(frozen=True)
class Branch:
    """`line` is the condition's; `loops`: it is the condition of a while, ends one with break, or is a for's range."""

    line: int
    words: str
    loops: bool


def branch_of(text: str, line: int, how: str) -> Branch | None:
    """The branch that the value read in `line` steers; None where none is seen. `how` is the method that read it.

    The value is in the condition itself, or in a name that a condition of the same function has. A condition on a
    tensor (`how` is bool) is one wherever it is written.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    loops = [node for node in ast.walk(tree) if isinstance(node, (ast.While, ast.For))]
    for node, condition in _conditions(tree):
        if _has(condition, line):
            return _branch(text, node, condition, loops)
    scope = max((node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and _has(node, line)),
                key=lambda node: node.lineno, default=tree)  # fmt: skip
    names = {
        name.id
        for node in ast.walk(scope)
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and _has(node, line)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    }
    for node, condition in _conditions(scope):
        if names & {name.id for name in ast.walk(condition) if isinstance(name, ast.Name)}:
            return _branch(text, node, condition, loops)
    lines = text.splitlines()
    return (
        Branch(line, first_words(lines[line - 1].strip(), _MOST_WORDS), False)
        if how == "bool" and line <= len(lines)
        else None
    )


def _conditions(tree: ast.AST) -> Iterator[tuple[ast.AST, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
            yield node, node.test
        elif isinstance(node, ast.For) and isinstance(node.iter, ast.Call):
            if isinstance(node.iter.func, ast.Name) and node.iter.func.id == "range":
                yield node, node.iter
        elif isinstance(node, ast.comprehension):
            yield from ((node, condition) for condition in node.ifs)


def _has(node: ast.stmt | ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _branch(text: str, node: ast.AST, condition: ast.expr, loops: list[ast.While | ast.For]) -> Branch:
    kind = {ast.While: "while", ast.Assert: "assert", ast.For: "for … in"}.get(type(node), "if")
    leaves = (ast.Break, ast.Return)
    ends_loop = (
        isinstance(node, ast.If)
        and any(isinstance(inner, leaves) for part in (*node.body, *node.orelse) for inner in ast.walk(part))
        and any(_has(loop, node.lineno) for loop in loops)
    )
    words = f"{kind} {ast.get_source_segment(text, condition) or ''}"
    return Branch(
        condition.lineno, first_words(words, _MOST_WORDS), isinstance(node, (ast.While, ast.For)) or ends_loop
    )
