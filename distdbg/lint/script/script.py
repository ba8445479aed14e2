"""One script, parsed once: every node in the order of the source, who contains whom, and what its imports are called.

Nothing here recurses over the tree: a file of a thousand nested brackets costs time, not the interpreter's stack.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from distdbg.lint.script.file import File, ImportedCode, blocks
from distdbg.lint.script.kinds import kind_by_name
from distdbg.lint.script.nodes import SCOPES, node_fields

Function = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While
#: what identifies a variable: see ValueFlow.key
Key = tuple[object, ...]
LOOPS = (ast.For, ast.AsyncFor, ast.While)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
#: one of the optimizers or schedulers of torch
_LOOKED_UP = {
    "torch.optim": "torch.optim.create_optimizer",
    "torch.optim.lr_scheduler": "torch.optim.lr_scheduler.get_scheduler",
}


class Script:
    """A file, and of other files what it calls from them (see modules.py), in one index.

    `names` and `tree` are the file's own; `text` goes on with the text of what is imported. `links` say where imported
    names lead: (file's tree, dotted name) -> (file's tree, name). `check_limit` is called by every search of the tree,
    with the number of nodes that the caller gets.
    """

    def __init__(
        self,
        file: File,
        imported: Sequence[ImportedCode] = (),
        links: Mapping[tuple[ast.Module, str], tuple[ast.Module, str]] | None = None,
        check_limit: Callable[[int], None] = lambda _nodes: None,
    ) -> None:
        self.file = file
        self.check_limit = check_limit
        self.tree = file.tree
        self.imported = imported
        self.links = links or {}
        self._linked: dict[ast.AST, tuple[ast.Module, str] | None] = {}
        self._bound_in: dict[Function, set[str]] = {}
        self._has_text: dict[tuple[ast.AST, re.Pattern[str]], bool] = {}
        self.files = {f.tree: f for f in (file, *(code.file for code in imported))}
        self.text = "\n".join([file.text, *(code.file.text_of(s) for code in imported for s in code.statements)])
        self.parents: dict[ast.AST, ast.AST] = {}
        self.scopes: dict[ast.AST, ast.AST] = {}
        self.begin: dict[ast.AST, int] = {}
        self.end: dict[ast.AST, int] = {}
        self._kinds: dict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        self._begins: dict[type[ast.AST], list[int]] = defaultdict(list)
        self._index()
        self.names = file.names

    def _index(self) -> None:
        """The file's own statements first, then those of each other file; their trees contain just these."""
        count = 0
        own = ImportedCode(self.file, tuple(self.tree.body))
        self._kinds[ast.Module], self._begins[ast.Module] = [self.tree], [0]
        for code in (own, *self.imported):
            tree = code.file.tree
            self.scopes[tree], self.begin[tree] = tree, count
            count += code is own  # its tree is a node, too
            for statement in code.statements:
                its = code.file.nodes(statement)
                size = len(its.nodes)
                self.begin.update(zip(its.nodes, range(count, count + size), strict=True))
                self.end.update(zip(its.nodes, map(count.__add__, its.ends), strict=True))
                self.parents.update(its.parents)
                self.scopes.update(its.scopes)
                for kind, (nodes, places) in its.kinds.items():
                    self._kinds[kind] += nodes
                    self._begins[kind] += map(count.__add__, places)
                count += size
            self.end[tree] = count

    def all(self, *kinds: type[ast.AST]) -> list[Any]:
        """Every node of these kinds, in the order of the source."""
        if len(kinds) == 1:
            return self._kinds.get(kinds[0], [])
        found = [node for kind in kinds for node in self._kinds.get(kind, [])]
        return sorted(found, key=self.begin.__getitem__)

    def within(self, node: ast.AST, *kinds: type[ast.AST], behind: ast.AST | None = None) -> list[Any]:
        """Nodes of these kinds inside `node`, nested functions included, in order; those that begin after `behind`."""
        low, high = self.begin[node], self.end[node]
        low = low if behind is None else max(low, self.begin[behind] + 1)
        found: list[ast.AST] = []
        for kind in kinds:
            begins = self._begins.get(kind, [])
            found += self._kinds.get(kind, [])[bisect_left(begins, low) : bisect_left(begins, high)]
        self.check_limit(1 + len(found))
        if len(kinds) > 1:
            found.sort(key=self.begin.__getitem__)
        return found

    def named_within(self, node: ast.AST, name: str, after: ast.AST) -> Iterator[ast.Name]:
        """Uses of a name inside `node` and behind the end of another node, in order."""
        uses, begins = self._uses.get(name, ([], []))
        for place in range(bisect_left(begins, self.end[after]), bisect_left(begins, self.end[node])):
            self.check_limit(1)
            yield uses[place]

    @cached_property
    def _uses(self) -> dict[str, tuple[list[ast.Name], list[int]]]:
        """By name where it is used, and where each of these begins."""
        found: dict[str, tuple[list[ast.Name], list[int]]] = defaultdict(lambda: ([], []))
        for name in self.all(ast.Name):
            uses, begins = found[name.id]
            uses.append(name)
            begins.append(self.begin[name])
        return found

    def has_text(self, place: ast.AST, pattern: re.Pattern[str]) -> bool:
        """Whether the text of a function, or of everything for a module, has a part that matches."""
        if (place, pattern) not in self._has_text:
            text = self.source(place) if isinstance(place, FUNCTIONS) else self.text
            self._has_text[place, pattern] = pattern.search(text) is not None
        return self._has_text[place, pattern]

    def names_bound_in(self, function: Function) -> set[str]:
        """Names that it or a nested function binds or deletes; its parameters are not among them."""
        if function not in self._bound_in:
            names = self.within(function, ast.Name)
            self._bound_in[function] = {n.id for n in names if not isinstance(n.ctx, ast.Load)}
        return self._bound_in[function]

    def contains(self, outer: ast.AST, inner: ast.AST) -> bool:
        return self.begin[outer] <= self.begin[inner] < self.end[outer]

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """The parent, its parent, … up to the module."""
        parent = self.parents.get(node)
        while parent is not None:
            self.check_limit(1)
            yield parent
            parent = self.parents.get(parent)

    def function_of(self, node: ast.AST) -> Function | None:
        """The function whose body the node runs in; None at the top of the file."""
        self.check_limit(1)
        scope = self.scopes.get(node)
        while isinstance(scope, ast.Lambda):
            scope = self.scopes.get(scope)
        return scope if isinstance(scope, FUNCTIONS) else None

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """The class whose `self` the node means."""
        self.check_limit(1)
        scope: ast.AST | None = node if isinstance(node, FUNCTIONS) else self.scopes.get(node)
        while scope is not None and not isinstance(scope, ast.Module):
            owner = self.parents.get(scope)
            if isinstance(scope, FUNCTIONS) and isinstance(owner, ast.ClassDef):
                return owner
            scope = self.scopes.get(scope)
        return None

    def loops_around(self, node: ast.AST) -> list[Loop]:
        """Loops of the same function whose body holds the node, the innermost first."""
        found: list[Loop] = []
        below = node
        for outer in self.above(node):
            if isinstance(outer, SCOPES):
                break
            if isinstance(outer, LOOPS) and below in outer.body:
                found.append(outer)
            below = outer
        return found

    def statement_of(self, node: ast.AST) -> ast.stmt:
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def block_of(self, statement: ast.stmt) -> list[ast.stmt]:
        """The list of statements that directly contains this one. The two branches of an `if` are two lists."""
        parent = self.parents[statement]
        lists: list[list[ast.stmt]] = [getattr(parent, name) for name in blocks(type(parent))]
        return next(statements for statements in lists if statement in statements)

    def source(self, node: ast.AST) -> str:
        """The text of an expression as in the file, on one line."""
        first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", None)
        if not first or last is None:
            return ""
        self.check_limit(1 + last - first)
        lines = [line.encode("utf-8", "surrogateescape") for line in self.file_of(node).lines[first - 1 : last]]
        lines[-1] = lines[-1][: getattr(node, "end_col_offset", None)]
        lines[0] = lines[0][getattr(node, "col_offset", 0) :]
        return " ".join(b" ".join(lines).decode("utf-8", "replace").split())

    # names ------------------------------------------------------------------------------------------------------

    def module_of(self, node: ast.AST) -> ast.Module:
        """The tree of the file that contains the node."""
        while not isinstance(node, ast.Module):
            node = self.scopes[node]
        return node

    def file_of(self, node: ast.AST) -> File:
        return self.files[self.module_of(node)] if self.imported else self.file

    @cached_property
    def words_that_link(self) -> frozenset[str]:
        """How the names that lead elsewhere can end where they are used."""
        aliases = {a for tree, f in self.files.items() for a, whole in f.names.items() if (tree, whole) in self.links}
        return frozenset(dotted.rpartition(".")[2] for _, dotted in self.links) | aliases

    def linked(self, node: ast.AST) -> tuple[ast.Module, str] | None:
        """Where an imported name was defined, if its file was joined: the file's tree and the name there."""
        if last_word(node) not in self.words_that_link:
            return None  # most names
        if node not in self._linked:
            self._linked[node] = self.links.get((self.module_of(node), self.dotted(node)))
        return self._linked[node]

    def dotted(self, node: ast.AST) -> str:
        """`dist.barrier` as `torch.distributed.barrier`; with `()` or `[]` in it for what is no plain name."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            names = self.file_of(node).names if self.imported else self.names
            parts.append(names.get(node.id, node.id))
        else:
            parts.append("()" if isinstance(node, ast.Call) else "[]")
        return ".".join(reversed(parts))

    @cached_property
    def call_names(self) -> dict[ast.Call, str]:
        found = {call: self.dotted(call.func) for call in self.all(ast.Call)}
        variables = self._class_variables
        for call, name in found.items():
            if name == "()":
                found[call] = self._looked_up(call.func)
            elif name in variables:
                found[call] = variables[name]
        return found

    def _looked_up(self, function: ast.expr) -> str:
        """`getattr(torch.optim, name)(…)`."""
        if isinstance(function, ast.Call) and function.args and self.dotted(function.func) == "getattr":
            return _LOOKED_UP.get(self.dotted(function.args[0]), "()")
        return "()"

    @cached_property
    def _class_variables(self) -> dict[str, str]:
        """`maker = SGD`, `maker = RandomSampler if alone else DistributedSampler`: variables of classes that matter."""
        found: dict[str, set[str]] = defaultdict(set)
        for assigned in self.all(ast.Assign):
            if not isinstance(assigned.value, (ast.Name, ast.Attribute, ast.IfExp)):
                continue
            match assigned:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name() | ast.Attribute() as one):
                    found[name].add(self.dotted(one))
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.IfExp(body=body, orelse=orelse)):
                    either = [self.dotted(o) for o in (orelse, body) if isinstance(o, (ast.Name, ast.Attribute))]
                    found[name].add(next((o for o in either if kind_by_name(o.rpartition(".")[2])), ""))
        its = {name: one for name, ones in found.items() for one in ones if len(ones) == 1}
        return {name: one for name, one in its.items() if kind_by_name(one.rpartition(".")[2])}

    @cached_property
    def last_names(self) -> dict[ast.Call, str]:
        """The last part of what each call calls: `save` for `torch.save(…)` and for `model.save(…)`."""
        return {call: name.rpartition(".")[2] for call, name in self.call_names.items()}

    @cached_property
    def _by_last_name(self) -> dict[str, list[ast.Call]]:
        found: dict[str, list[ast.Call]] = defaultdict(list)
        for call, name in self.last_names.items():
            found[name].append(call)
        return found

    def calls(self, *last_names: str) -> list[ast.Call]:
        return sorted((c for n in last_names for c in self._by_last_name.get(n, ())), key=self.begin.__getitem__)

    def is_module(self, owner: ast.ClassDef) -> bool:
        """Does the class name torch.nn.Module as a base?"""
        return "torch.nn.Module" in map(self.dotted, owner.bases)


def argument(call: ast.Call, place: int, name: str) -> ast.expr | None:
    """An argument by keyword or place; None where it is not given (or hides in `*args`)."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    plain = call.args[: place + 1]
    return plain[place] if 0 <= place < len(plain) and not any(isinstance(a, ast.Starred) for a in plain) else None


def is_constant(node: ast.AST | None, value: object) -> bool:
    """Is the expression this very constant: True, False or None?"""
    return isinstance(node, ast.Constant) and node.value is value


def has_stars(call: ast.Call) -> bool:
    return any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)


def last_word(node: ast.AST) -> str:
    """`b` of `a.b` and of `b`; empty for what is neither an attribute nor a name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def receiver(call: ast.AST) -> ast.expr | None:
    """`a` of `a.b(…)`; None for what is no call of a method."""
    return call.func.value if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None


def names_in(node: ast.AST) -> set[str]:
    """Every name and attribute that an expression mentions, and every text in it."""
    found: set[str] = set()
    todo = [node]
    while todo:
        inner = todo.pop()
        kind = type(inner)
        if kind is ast.Name:
            found.add(inner.id)  # type: ignore[attr-defined]
        elif kind is ast.Constant:
            if type(inner.value) is str:  # type: ignore[attr-defined]
                found.add(inner.value)  # type: ignore[attr-defined]
        else:
            if kind is ast.Attribute:
                found.add(inner.attr)  # type: ignore[attr-defined]
            for name in node_fields(kind):
                value = getattr(inner, name, None)
                if type(value) is list:
                    todo += [child for child in value if child is not None]
                elif isinstance(value, ast.AST):
                    todo.append(value)
    return found
