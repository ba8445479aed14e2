"""Tell names that hold one sample or batch of the data: where ranks share the data, each rank has others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property

from distdbg.lint.script.script import Key, Script, last_word, names_in
from distdbg.lint.script.values import ValueFlow

_DATA = re.compile(
    r"loader|batch|data|sample|image|img|video|audio|wav|utt|prompt|example|quer|input|iter$", re.IGNORECASE
)
_DEEPEST = 3


class Samples:
    def __init__(self, script: Script, values: ValueFlow) -> None:
        self.script = script
        self.values = values

    def named_in(self, expression: ast.expr) -> bool:
        """Is a sample, or what is read from one, a part of the expression: directly or through variables?"""
        parts: list[ast.AST] = [expression]
        for _ in range(_DEEPEST):
            names = [n for part in parts for n in self.script.within(part, ast.Name)]
            if any(self.values.key(name) in self._variables for name in names):
                return True
            parts = [value for name in names for value in self.values.bound(name)]
        return False

    @cached_property
    def _variables(self) -> set[Key | None]:
        """What loops over data, in statements and in comprehensions, give their variables; no counters."""
        loops = self.script.all(ast.For, ast.AsyncFor, ast.comprehension)
        return {self.values.key(n) for loop in loops for n in _of_data(loop.target, loop.iter)} - {None}


def _of_data(target: ast.expr, source: ast.expr) -> Iterator[ast.AST]:
    while isinstance(source, ast.Call) and source.args:
        name = last_word(source.func)
        if name == "enumerate" and isinstance(target, ast.Tuple) and len(target.elts) == 2:
            target = target.elts[1]
        elif name in ("range", "zip"):
            break
        source = source.args[0]
    if isinstance(source, ast.Call) and last_word(source.func) == "range":
        return
    if any(map(_DATA.search, names_in(source))):
        yield from (n for n in ast.walk(target) if isinstance(n, ast.Name))
