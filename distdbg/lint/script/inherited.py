"""Tell what a class makes by what it inherits from: torch's optimizers and schedulers, samplers, loaders, wrappers."""

from __future__ import annotations

import ast
from typing import Protocol

from distdbg.lint.script.kinds import KINDS
from distdbg.lint.script.script import Script


class _Classes(Protocol):
    script: Script

    def class_named(self, node: ast.AST) -> ast.ClassDef | None: ...


def inherited_kind(values: _Classes, owner: ast.ClassDef) -> str:
    """By the bases of a class, and by theirs; empty for most."""
    todo, seen = [owner], {owner}
    while todo:
        for base in todo.pop().bases:
            its = _by_base(values.script.dotted(base))
            if its:
                return its
            above = values.class_named(base)
            if above is not None and above not in seen:
                seen.add(above)
                todo.append(above)
    return ""


def _by_base(name: str) -> str:
    if name.startswith("torch.optim.lr_scheduler."):
        return "scheduler"
    if name.startswith("torch.optim."):
        return "optimizer"
    return KINDS.get(name.rpartition(".")[2], "")
