"""The classes and functions of a script without running it: what a pickle that names `__main__` needs."""

from __future__ import annotations

import ast
import contextlib
from pathlib import Path
from types import ModuleType

_KEPT = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def definitions_of(script: Path, name: str) -> ModuleType:
    """A module of this name with the script's imports, classes, functions and plain values, as far as they go.

    What stands below an `if`, and all other statements, are left out: they would train. A definition that needs one of
    those is not there. Raises OSError, SyntaxError, ValueError.
    """
    module = ModuleType(name)
    module.__file__ = str(script)
    tree = ast.parse(script.read_bytes(), str(script))
    for statement in tree.body:
        if isinstance(statement, _KEPT) or _is_plain(statement) or _only_imports(statement):
            code = compile(ast.Module([statement], []), str(script), "exec", dont_inherit=True, flags=_future(tree))
            with contextlib.suppress(Exception):
                exec(code, module.__dict__)
    return module


def _is_plain(statement: ast.stmt) -> bool:
    """`WIDTH = 64`: what is written out, and calls nothing."""
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
        return False
    return not any(isinstance(node, (ast.Call, ast.Await, ast.Yield)) for node in ast.walk(statement.value))


def _only_imports(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Try):
        return False
    inner = [*statement.body, *(one for handler in statement.handlers for one in handler.body)]
    return all(isinstance(one, (ast.Import, ast.ImportFrom)) or _is_plain(one) for one in inner)


def _future(tree: ast.Module) -> int:
    """Annotations may stay text where the script says so."""
    import __future__

    names = {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"
             for alias in node.names}  # fmt: skip
    return __future__.annotations.compiler_flag if "annotations" in names else 0
