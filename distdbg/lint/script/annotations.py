"""Find parameters, variables and attributes that are annotated with a class of the linted files."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Protocol

from distdbg.lint.script.script import Key, Script, last_word


class _Values(Protocol):
    script: Script
    classes: dict[tuple[ast.Module, str], ast.ClassDef]

    def class_named(self, node: ast.AST) -> ast.ClassDef | None: ...

    def root_class(self, owner: ast.ClassDef) -> ast.ClassDef: ...

    def key(self, node: ast.AST) -> Key | None: ...


def annotated_classes(values: _Values) -> Iterator[tuple[Key, ast.ClassDef]]:
    """What identifies each variable (see ValueFlow.key), and its class."""
    script = values.script
    for node in script.all(ast.arg, ast.AnnAssign) if values.classes else ():
        made = values.class_named(_plain(node.annotation)) if node.annotation is not None else None
        if made is None:
            continue
        owner = script.parents.get(node)
        if isinstance(node, ast.arg):
            yield (script.scopes[node], node.arg), made
        elif isinstance(owner, ast.ClassDef) and isinstance(node.target, ast.Name):
            yield ("self", values.root_class(owner), node.target.id), made
        elif (key := values.key(node.target)) is not None:
            yield key, made


def _plain(annotation: ast.expr) -> ast.expr:
    """`Saver` of `Optional[Saver]` and of `Saver | None`."""
    if isinstance(annotation, ast.Subscript) and last_word(annotation.value) == "Optional":
        annotation = annotation.slice
    return annotation.left if isinstance(annotation, ast.BinOp) else annotation
