"""Find values that differ from rank to rank because a rank decides which assignment, count or return runs.

`save = False` … `if rank == 0: save = better` makes `save` rank-dependent. So do counters that one rank increments,
returns under a test of the rank, and everything that is computed from such a value. A value that all ranks are given
again (a plain assignment, or a collective that takes it) is not rank-dependent behind that line.

Limits: assignments are compared by the order of the source, loops included, branches not. A value that goes through a
container, or through a parameter of another function, is not followed.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from distdbg.lint.script.script import FUNCTIONS, Function, Key, Script, last_word
from distdbg.lint.script.values import ValueFlow

#: calls after which all ranks have one value
_AGREES = re.compile(r"broadcast|bcast|reduce|gather|scatter", re.IGNORECASE)
#: functions whose result depends on nothing but their arguments
_PURE = frozenset(("int", "bool", "len", "str", "float", "min", "max", "any", "all", "abs"))
_MAX_PASSES = 4


@dataclass
class _Stores:
    """Statements that store a variable: those that make it rank-dependent, and those after which it is not."""

    dependent: list[ast.AST] = field(default_factory=list)
    equal: list[ast.AST] = field(default_factory=list)


class RankTaint:
    """`runs_on_some` tells whether a statement runs on some ranks only, by the tests of the rank around it."""

    def __init__(self, script: Script, values: ValueFlow, runs_on_some: Callable[[ast.AST], bool]) -> None:
        self._script, self._values, self._runs_on_some = script, values, runs_on_some
        self._stores: dict[Key, _Stores] = {}
        self._functions: set[Function] = set()
        writes = [*self._assignments(), *self._agreements()]
        for _ in range(_MAX_PASSES):
            before = sum(len(one.dependent) for one in self._stores.values()), len(self._functions)
            self._collect(writes)
            if before == (sum(len(one.dependent) for one in self._stores.values()), len(self._functions)):
                break

    def depends(self, expression: ast.expr) -> bool:
        """Does the value of an expression differ from rank to rank for one of these reasons?"""
        if not self._stores and not self._functions:
            return False
        todo: list[ast.AST] = [expression]
        while todo:
            node = todo.pop()
            if isinstance(node, ast.Call):
                if not self._functions.isdisjoint(self._values.callees(node)):
                    return True
                todo += node.args if last_word(node.func) in _PURE else []
            elif isinstance(node, (ast.Name, ast.Attribute)):
                if self._is_dependent(node):
                    return True
            elif not isinstance(node, ast.Lambda):
                todo += ast.iter_child_nodes(node)
        return False

    def _assignments(self) -> Iterator[tuple[Key, ast.AST, ast.expr | None]]:
        """(variable, statement, value) of each assignment; no value for a parameter, which every call gives."""
        for node in self._script.all(ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                key = self._values.key(target)
                if key is not None and node.value is not None:
                    yield key, node, node.value
        for argument in self._script.all(ast.arg):
            yield (self._script.scopes[argument], argument.arg), argument, None

    def _agreements(self) -> Iterator[tuple[Key, ast.AST, None]]:
        """(variable, call, None) of each variable that a collective is given."""
        for call in self._script.all(ast.Call):
            if self._agrees(call):
                for given in call.args:
                    if (key := self._values.key(given)) is not None:
                        yield key, call, None

    def _collect(self, writes: list[tuple[Key, ast.AST, ast.expr | None]]) -> None:
        stores: dict[Key, _Stores] = defaultdict(_Stores)
        for key, node, value in writes:
            if self._runs_on_some(node) or (value is not None and self.depends(value)):
                stores[key].dependent.append(node)
            else:
                stores[key].equal.append(node)
        self._stores = {key: one for key, one in stores.items() if self._may_differ(one)}
        self._functions = {function for function in self._script.all(*FUNCTIONS) if self._returns_differ(function)}

    def _may_differ(self, stores: _Stores) -> bool:
        """What is stored on one side of one test only does not exist on the other ranks: nothing is compared."""
        if not stores.dependent:
            return False
        values = {ast.dump(getattr(node, "value", node)) for node in stores.dependent}
        tests = {self._script.parents.get(node) for node in stores.dependent}
        both_sides = len(values) > 1 and len(tests) < len(stores.dependent)
        return bool(stores.equal) or both_sides or not all(map(self._runs_on_some, stores.dependent))

    def _returns_differ(self, function: Function) -> bool:
        returns = [r for r in self._script.within(function, ast.Return) if self._script.function_of(r) is function]
        if not returns or not any(map(self._runs_on_some, returns)):
            return False
        values = {ast.dump(r.value) if r.value is not None else "" for r in returns}
        if not isinstance(function.body[-1], ast.Return):
            values.add("")
        return len(values) > 1

    def _is_dependent(self, node: ast.expr) -> bool:
        key = self._values.key(node)
        stores = self._stores.get(key) if key is not None else None
        return stores is not None and any(self._reaches(store, node, stores.equal) for store in stores.dependent)

    def _reaches(self, store: ast.AST, use: ast.AST, equal: list[ast.AST]) -> bool:
        """Does a value that was stored there get to the use, with no assignment for all ranks between?"""
        script, begin = self._script, self._script.begin
        before = [e for e in equal if begin[e] < begin[use] and self._always_runs_before(e, use)]
        if script.function_of(store) is not script.function_of(use):
            return not any(script.function_of(e) is script.function_of(use) for e in before)
        if begin[store] < begin[use]:
            return not any(begin[e] > begin[store] for e in before)
        loop = next((loop for loop in script.loops_around(use) if script.contains(loop, store)), None)
        if loop is None:
            return False
        later = [e for e in equal if begin[e] > begin[store] and self._always_runs_before(e, loop.body[-1])]
        return not any(script.contains(loop, e) for e in (*before, *later))

    def _always_runs_before(self, store: ast.AST, use: ast.AST) -> bool:
        """The block that holds the one contains the other, too. `if distributed: broadcast(x)` runs in each job."""
        if isinstance(store, ast.arg) or self._agrees(store):
            return True
        statement = self._script.statement_of(store)
        outer = self._script.parents[statement]
        if isinstance(outer, ast.Module):  # of a file that is imported not every statement is joined
            return self._script.module_of(use) is outer
        block = self._script.block_of(statement)
        return self._script.begin[block[0]] <= self._script.begin[use] < self._script.end[block[-1]]

    def _agrees(self, store: ast.AST) -> bool:
        call = getattr(store, "value", store)
        return isinstance(call, ast.Call) and _AGREES.search(self._script.last_names[call]) is not None
