"""One file of Python: its text, its tree, the names that it imports, and the nodes of each statement."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from functools import cached_property

from distdbg.lint.script.nodes import StatementNodes

#: of each kind of node the fields that hold statements, the last one first
_BLOCKS: dict[type[ast.AST], tuple[str, ...]] = {}


def blocks(kind: type[ast.AST]) -> tuple[str, ...]:
    """Names of the fields of such a node that hold statements."""
    if kind not in _BLOCKS:
        holds = issubclass(kind, (ast.mod, ast.stmt, ast.ExceptHandler, ast.match_case))
        names = ("cases", "handlers", "finalbody", "orelse", "body") if holds else ()
        _BLOCKS[kind] = tuple(name for name in names if name in kind._fields)
    return _BLOCKS[kind]


def split_lines(text: str) -> list[str]:
    """Lines as the parser counts them: a form feed or a Unicode separator ends none."""
    return re.split(r"\r\n|\r|\n", text) if "\r" in text else text.split("\n")


@dataclass(eq=False)
class File:
    """One file: its text and its tree."""

    path: str
    text: str
    tree: ast.Module
    _nodes: dict[ast.stmt, StatementNodes] = field(default_factory=dict)

    @cached_property
    def lines(self) -> list[str]:
        return split_lines(self.text)

    @property
    def names(self) -> dict[str, str]:
        """`dist` -> `torch.distributed`; what is imported from the file's own package begins with a dot."""
        return self._imports[0]

    @property
    def stars(self) -> tuple[str, ...]:
        """`utils.` of `from utils import *`, in the order of the source."""
        return self._imports[1]

    @cached_property
    def _imports(self) -> tuple[dict[str, str], tuple[str, ...]]:
        found: dict[str, str] = {}
        stars: list[str] = []
        todo: list[ast.AST] = [self.tree]
        while todo:  # imports are statements: no expression is looked into
            node = todo.pop()
            if isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.name if alias.asname else alias.name.partition(".")[0]
                    found[alias.asname or name] = name
            elif isinstance(node, ast.ImportFrom):
                base = "." * node.level + (f"{node.module}." if node.module else "")
                stars += [base for a in node.names if a.name == "*"]
                found |= {a.asname or a.name: f"{base}{a.name}" for a in node.names if a.name != "*"}
            else:
                for name in blocks(type(node)):
                    todo += reversed(getattr(node, name))
        return found, tuple(stars)

    @cached_property
    def places(self) -> dict[ast.AST | None, int]:
        """Of each statement at the top level, which one it is."""
        return {statement: place for place, statement in enumerate(self.tree.body)}

    def nodes(self, statement: ast.stmt) -> StatementNodes:
        if statement not in self._nodes:
            self._nodes[statement] = StatementNodes(statement, self.tree)
        return self._nodes[statement]

    def text_of(self, statement: ast.stmt) -> str:
        first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])
        return "\n".join(self.lines[first - 1 : statement.end_lineno])


@dataclass(frozen=True)
class ImportedCode:
    """Statements of another file that a script leads to."""

    file: File
    statements: tuple[ast.stmt, ...]
