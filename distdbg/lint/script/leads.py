"""Tell by names alone which calls may lead to functions that are linted together: most calls cannot."""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import Protocol

from distdbg.lint.script.script import FUNCTIONS, Function, Script, last_word


class _Names(Protocol):
    script: Script
    classes: dict[tuple[ast.Module, str], ast.ClassDef]
    functions: dict[tuple[ast.Module, str], list[Function]]

    def class_named(self, node: ast.AST) -> ast.ClassDef | None: ...

    def functions_named(self, node: ast.AST) -> list[Function]: ...


def other_names(script: Script, functions: set[str]) -> dict[str, list[ast.Name]]:
    """`backwards = partial(backward, fp16)`, `step = train_step`: by the variable's last word, the functions."""
    found: dict[str, list[ast.Name]] = defaultdict(list)
    for assigned in script.all(ast.Assign):
        value = assigned.value
        if isinstance(value, ast.Call) and script.last_names[value] in ("partial", "compile") and value.args:
            value = value.args[0]
        if isinstance(value, ast.Name) and value.id in functions:
            for target in assigned.targets:
                found[last_word(target)].append(value)
    return found


def methods_by_class(script: Script) -> dict[ast.ClassDef, dict[str, Function]]:
    """Each class with its methods by name; of several with one name the last one holds."""
    return {c: {f.name: f for f in c.body if isinstance(f, FUNCTIONS)} for c in script.all(ast.ClassDef)}


def subclasses(names: _Names) -> dict[ast.ClassDef, list[ast.ClassDef]]:
    """By a class, those that name it as a base."""
    found: dict[ast.ClassDef, list[ast.ClassDef]] = defaultdict(list)
    for owner in names.classes.values():
        for base in owner.bases:
            if (above := names.class_named(base)) is not None:
                found[above].append(owner)
    return found


def inheriting(owner: ast.ClassDef, below: dict[ast.ClassDef, list[ast.ClassDef]]) -> list[ast.ClassDef]:
    """Every class that inherits from this one, directly or not."""
    found = list(below.get(owner, []))
    for one in found:  # grows meanwhile
        found += [its for its in below.get(one, []) if its not in found]
    return found


class CallsThatLead:
    def __init__(self, names: _Names) -> None:
        self._names = names
        script = names.script
        self._methods = {f.name for c in names.classes.values() for f in c.body if isinstance(f, FUNCTIONS)}
        self._functions = {name for _, name in names.functions}
        self._functions |= {alias.rpartition(".")[2] for _, alias in script.links}
        self._functions |= {alias for file in script.files.values() for alias in file.names}

    def may(self, call: ast.Call) -> bool:
        """By its own name, or as a callback among its arguments."""
        function = call.func
        if isinstance(function, ast.Attribute):
            if function.attr in self._methods or self._names.script.linked(function):
                return True
        elif self._names.class_named(function) is not None or self._names.functions_named(function):
            return True
        return any(map(self._leads, (*call.args, *(k.value for k in call.keywords))))

    def _leads(self, given: ast.expr) -> bool:
        if isinstance(given, ast.Name):
            return given.id in self._functions
        return isinstance(given, ast.Attribute) and given.attr in self._methods


def by_an_object(call: ast.Call) -> bool:
    """What it leads to depends on what the object may be."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return owner is not None and not (isinstance(owner, ast.Name) and owner.id in ("self", "cls"))
