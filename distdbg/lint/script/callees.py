"""Resolve a call to the functions that it may run: by name, by `self`, by the class of an object, as a callback."""

from __future__ import annotations

import ast
import weakref
from collections.abc import Iterator
from functools import cached_property
from typing import Protocol

from distdbg.lint.script.kinds import CALL_NOTHING
from distdbg.lint.script.leads import inheriting, methods_by_class, other_names, subclasses
from distdbg.lint.script.script import Function, Script, last_word


class _Values(Protocol):
    script: Script
    classes: dict[tuple[ast.Module, str], ast.ClassDef]
    functions: dict[tuple[ast.Module, str], list[Function]]

    words_of_objects: set[str]

    def class_named(self, node: ast.AST) -> ast.ClassDef | None: ...

    def functions_named(self, node: ast.AST) -> list[Function]: ...

    def classes_of(self, node: ast.AST) -> list[ast.ClassDef]: ...

    def assignments(self, node: ast.AST) -> list[ast.Assign]: ...


class Callees:
    def __init__(self, values: _Values, may_be_function: set[str]) -> None:
        self.script = values.script
        self._values: _Values = weakref.proxy(values)  # without a cycle, all of a script goes when its file is done
        self._may_be_function = may_be_function
        self._other_names = other_names(values.script, may_be_function)
        self._methods_of = methods_by_class(values.script)
        self._method_names = {name for its in self._methods_of.values() for name in its}

    def of(self, call: ast.Call) -> list[Function]:
        """What the call runs, or passes on to be run."""
        return list(dict.fromkeys((*self.by_name(call), *self._callbacks(call))))

    def overriding(self, call: ast.Call, function: Function) -> list[Function]:
        """What runs instead of a method of self, if the object is of a class that inherits from the method's."""
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        its = self.script.parents.get(function)
        if not isinstance(owner, ast.Name) or owner.id != "self" or not isinstance(its, ast.ClassDef):
            return []
        return self._of_subclasses(its, function.name)

    def bound_before(self, call: ast.Call) -> bool:
        """Called by the name of a variable, as for `step = partial(train_step, model)`."""
        return last_word(call.func) in self._other_names

    def by_name(self, call: ast.Call) -> list[Function]:
        function = call.func
        if isinstance(function, ast.Name) or (isinstance(function, ast.Attribute) and self.script.linked(function)):
            made = self._values.class_named(function)
            if made is not None:
                return self._methods(made, "__init__")
            found = self._values.functions_named(function) or self._by_another_name(function)
            hidden = found and isinstance(function, ast.Name) and function.id in self._parameters(call)
            if found:
                return [] if hidden else found
        found = self._by_owner(function) if isinstance(function, ast.Attribute) else []
        return found or self._of_an_object(function)

    def iterators(self, call: ast.Call) -> list[Function]:
        """The methods that give the elements of an object that the call makes."""
        made = self._values.class_named(call.func)
        return [f for name in ("__iter__", "__next__") for f in self._methods(made, name)] if made is not None else []

    def _callbacks(self, call: ast.Call) -> Iterator[Function]:
        if last_word(call.func) in CALL_NOTHING:
            return
        for value in (*call.args, *(k.value for k in call.keywords if k.arg in _CALLBACKS)):
            if isinstance(value, ast.Name):
                if value.id in self._may_be_function and value.id not in self._parameters(call):
                    yield from self._values.functions_named(value)
            elif isinstance(value, ast.Attribute) and value.attr in self._method_names:
                yield from self._by_owner(value)

    def _parameters(self, node: ast.AST) -> set[str]:
        function = self.script.function_of(node)
        return {a.arg for a in function.args.args} if function else set()

    def _by_another_name(self, function: ast.expr) -> list[Function]:
        """Of a variable that is bound to nothing but one function."""
        made = self._other_names.get(last_word(function), [])
        once = len(made) == 1 and len(self._values.assignments(function)) == 1
        return self._values.functions_named(made[0]) if once else []

    def _by_owner(self, function: ast.Attribute) -> list[Function]:
        """Methods of `self`, of those above it, or of what the object may be."""
        name, owner = function.attr, function.value
        if name not in self._method_names:
            return []  # most names
        if _is_super(owner):
            its = self.script.class_of(function)
            return [f for one in self._above(its) for f in self._methods(one, name)] if its else []
        found: list[Function] = []
        for its in self._values.classes_of(owner):
            methods = self._methods(its, name)
            left = not methods or all(map(_is_abstract, methods))
            found += (self._of_subclasses(its, name) or methods) if left else methods
        return found

    def _of_an_object(self, function: ast.expr) -> list[Function]:
        """`saver(model)` of an object whose class has a `__call__`."""
        if "__call__" not in self._method_names or last_word(function) not in self._values.words_of_objects:
            return []  # most names
        return [f for its in self._values.classes_of(function) for f in self._methods(its, "__call__")]

    def _above(self, owner: ast.ClassDef) -> list[ast.ClassDef]:
        return [c for b in owner.bases if (c := self._values.class_named(b)) is not None and c is not owner]

    @cached_property
    def _below(self) -> dict[ast.ClassDef, list[ast.ClassDef]]:
        return subclasses(self._values)

    def _of_subclasses(self, owner: ast.ClassDef, name: str) -> list[Function]:
        """What a base class calls, and leaves to those that inherit from it."""
        its = [self._methods_of[one] for one in inheriting(owner, self._below)]
        return [methods[name] for methods in its if name in methods]

    def _methods(self, owner: ast.ClassDef, name: str) -> list[Function]:
        """The method of a class: its own, else that of a base."""
        seen: set[ast.ClassDef] = set()
        todo = [owner]
        while todo:
            one = todo.pop(0)
            seen.add(one)
            if name in self._methods_of[one]:
                return [self._methods_of[one][name]]
            todo += [above for above in self._above(one) if above not in seen]
        return []


#: keywords under which a function is passed on
_CALLBACKS = ("target", "closure", "fn", "main_fn")


def by_super(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and _is_super(call.func.value)


def _is_super(owner: ast.expr) -> bool:
    return isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name) and owner.func.id == "super"


def is_called_by_python(method: Function) -> bool:
    """`__len__`, a property: no call names it."""
    special = method.name.startswith("__") and method.name not in ("__init__", "__call__")
    return special or any(last_word(d) == "property" for d in method.decorator_list)


def _is_abstract(method: Function) -> bool:
    """It does nothing but raise, or nothing at all: a class that inherits defines it."""
    return all(isinstance(s, (ast.Pass, ast.Raise)) or _is_a_text(s) for s in method.body)


def _is_a_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
