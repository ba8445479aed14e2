"""List the nodes of one statement, in the order of the source, with what contains each.

Nothing here recurses over the tree: a file of a thousand nested brackets costs time, not the interpreter's stack.
"""

from __future__ import annotations

import ast
from typing import Any

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
#: fields that hold no node, or one that no rule asks for: the parser shares one object between all places
_NO_NODES = frozenset((
    "ctx", "op", "ops", "id", "attr", "arg", "module", "level", "kind", "type_comment", "conversion", "is_async",
    "simple", "rest", "kwd_attrs", "type_ignores", "tag",
))  # fmt: skip
_LEAVES = (
    ast.Name, ast.Constant, ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom, ast.Pass, ast.Break, ast.Continue,
    ast.MatchSingleton, ast.MatchStar,
)  # fmt: skip
#: of each kind of node the fields that may hold one, the last one first
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = dict.fromkeys(_LEAVES, ())


def node_fields(kind: type[ast.AST]) -> tuple[str, ...]:
    if kind not in _FIELDS:
        _FIELDS[kind] = tuple(f for f in reversed(kind._fields) if f not in _NO_NODES)
    return _FIELDS[kind]


class StatementNodes:
    """Every node of a statement of a file's top level, in the order of the source; made once, for all scripts."""

    def __init__(self, statement: ast.stmt, tree: ast.Module) -> None:
        self.nodes: list[ast.AST] = []
        self.parents: dict[ast.AST, ast.AST] = {statement: tree}
        self.scopes: dict[ast.AST, ast.AST] = {statement: tree}
        #: of each kind the nodes, and their places in `nodes`
        self.kinds: dict[type[ast.AST], tuple[list[ast.AST], list[int]]] = {}
        #: the place behind the last node inside
        self.ends: list[int] = []
        self._walk(statement)

    def of_kind(self, kind: type[ast.AST]) -> list[Any]:
        return self.kinds[kind][0] if kind in self.kinds else []

    def _walk(self, statement: ast.stmt) -> None:
        """The innermost loop of everything: a number on the stack closes the node of this place."""
        nodes, parents, scopes, kinds, ends = self.nodes, self.parents, self.scopes, self.kinds, self.ends
        stack: list[ast.AST | int] = [statement]
        while stack:
            node = stack.pop()
            here = len(nodes)
            if isinstance(node, int):
                ends[node] = here
                continue
            kind = type(node)
            nodes.append(node)
            ends.append(here + 1)
            its = kinds.get(kind)
            if its is None:
                its = kinds[kind] = ([], [])
            its[0].append(node)
            its[1].append(here)
            fields = _FIELDS.get(kind)
            if fields is None:
                fields = node_fields(kind)
            elif not fields:
                continue  # most nodes are these
            inner = node if kind in SCOPES else scopes[node]
            stack.append(here)
            for name in fields:
                value = getattr(node, name, None)
                if type(value) is list:
                    for child in reversed(value):
                        if child is not None:
                            parents[child], scopes[child] = node, inner
                            stack.append(child)
                elif isinstance(value, ast.AST):
                    parents[value], scopes[value] = node, inner
                    stack.append(value)
