"""The index of a statement has each node of its tree once, but for those that no rule asks for."""

from __future__ import annotations

import ast
from pathlib import Path

from distdbg.lint.script.nodes import StatementNodes

DULL = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.alias)
HERE = Path(__file__).parent


def test_every_node_of_a_statement_is_in_its_index() -> None:
    for path in sorted(HERE.glob("*/*.py"))[::5] + sorted(HERE.parent.parent.glob("distdbg/lint/*/*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for statement in tree.body:
            index = StatementNodes(statement, tree)
            wanted = {node for node in ast.walk(statement) if not isinstance(node, DULL)}
            assert set(index.nodes) == wanted and len(index.nodes) == len(wanted), path
