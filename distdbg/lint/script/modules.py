"""Resolve imports between files that are linted together, and what a script needs of them.

A script is not joined with whole modules, but with those functions, classes and variables of them that it comes to:
by name, from there on by name again. So what it costs goes with what is used, not with how large a package is.
"""

from __future__ import annotations

import ast
import re
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath

from distdbg.lint.script.parsing import UnreadableScript, parse
from distdbg.lint.script.script import File, ImportedCode, Script, children

#: a file without one of these words is about no training, and nothing of it is worth following
ABOUT_TRAINING = re.compile(r"\btorch\b|\.backward\(|\.step\(|DataLoader|\.eval\(|_process\(|(?:\b|_)rank\b")
_MOST_LINES = 3000
_MOST_FILES = 400
_DEEPEST = 6
#: (file, name defined at its top level)
Place = tuple["Module", str]


@dataclass(eq=False)
class Module:
    """A parsed file, with what it defines at its top level and what each of these definitions mentions."""

    file: File
    _mentions: dict[ast.AST, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def defines(self) -> dict[str, list[ast.stmt]]:
        found: dict[str, list[ast.stmt]] = {}
        for statement in self.file.tree.body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.setdefault(statement.name, []).append(statement)
            elif isinstance(statement, ast.Assign):
                for target in statement.targets:
                    if isinstance(target, ast.Name):
                        found.setdefault(target.id, []).append(statement)
        return found

    def mentions(self, node: ast.AST) -> tuple[str, ...]:
        """Names, and dotted names as written (`utils.save`), that a piece of this file reads; each once."""
        if node not in self._mentions:
            self._mentions[node] = tuple(dict.fromkeys(_mentioned(node)))
        return self._mentions[node]


def _mentioned(node: ast.AST) -> Iterator[str]:
    todo = [node]
    while todo:
        one = todo.pop()
        if isinstance(one, ast.Name):
            yield one.id
        elif isinstance(one, ast.Attribute) and isinstance(one.value, (ast.Name, ast.Attribute)):
            whole = _dotted(one)
            if whole:
                yield whole
                continue
            todo.append(one.value)
        else:
            todo += children(one)


def _dotted(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


class Modules:
    """`texts` by path, as they were named."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts
        self._kept: OrderedDict[str, Module | None] = OrderedDict()
        self._words = {word for path in texts for word in PurePosixPath(path).with_suffix("").parts}
        self._by_place = {PurePosixPath(path).as_posix(): path for path in texts if path.endswith(".py")}

    def module(self, path: str) -> Module:
        """A file, parsed once while it is among the last few hundred. Raises UnreadableScript."""
        kept = self._kept.get(path)
        if kept is None:
            text = self.texts[path]
            kept = self._kept[path] = Module(File(path, text, parse(text)))
            if len(self._kept) > _MOST_FILES:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(path)
        return kept

    def script(self, path: str) -> Script:
        """The file joined with what it reaches in others."""
        module = self.module(path)
        if len(self._by_place) < 2 or _is_test(path):
            return Script(module.file)
        imported, links = _Linker(self, module).run()
        return Script(module.file, imported, links)

    def find(self, importer: str, dotted: str) -> tuple[str, str] | None:
        """(path, rest) of `.engine.train` or `package.engine.train`: the file that it leads into, and what is in it."""
        name = dotted.lstrip(".")
        dots, parts = len(dotted) - len(name), name.split(".")
        if parts[0] not in self._words:
            return None
        folder = PurePosixPath(importer).parent
        folders = [folder, *folder.parents] if not dots else [*([folder, *folder.parents][dots - 1 : dots])]
        for above in folders:
            for count in range(len(parts), 0, -1):
                base = above.joinpath(*parts[:count])
                for candidate in (f"{base}.py", f"{base}/__init__.py"):
                    if candidate in self._by_place and self._by_place[candidate] != importer:
                        return self._by_place[candidate], ".".join(parts[count:])
        return None

    def readable(self, path: str) -> Module | None:
        """The module of a file, if it is Python."""
        try:
            return self.module(path)
        except UnreadableScript:  # named and skipped where it is linted itself
            return None


def _is_test(path: str) -> bool:
    """A test calls things as no training does: it shows nothing about them."""
    name = PurePosixPath(path).name
    return name.startswith("test_") or name.endswith("_test.py") or name == "conftest.py"


class _Linker:
    """Follows names from one file into others, each definition once."""

    def __init__(self, modules: Modules, start: Module) -> None:
        self.modules = modules
        self.start = start
        self.taken: dict[Module, dict[ast.stmt, None]] = {}
        self.links: dict[tuple[ast.Module, str], tuple[ast.Module, str]] = {}
        self.lines = 0
        self._asked: set[tuple[Module, str]] = set()

    def run(self) -> tuple[list[ImportedCode], dict[tuple[ast.Module, str], tuple[ast.Module, str]]]:
        todo = deque[tuple[Module, ast.AST]]([(self.start, self.start.file.tree)])
        while todo:  # the nearest first: there is a limit
            module, piece = todo.popleft()
            for name in module.mentions(piece):
                if (module, name) not in self._asked:
                    self._asked.add((module, name))
                    todo += self._follow(module, name)
        imported = [
            ImportedCode(m.file, tuple(sorted(taken, key=lambda s: s.lineno))) for m, taken in self.taken.items()
        ]
        return imported, self.links

    def _follow(self, module: Module, name: str) -> Iterator[tuple[Module, ast.AST]]:
        """The new definitions that a name leads to: in another file, or in its own if that is not the script itself."""
        root, _, rest = name.partition(".")
        if root in module.defines:
            if module is not self.start:
                yield from self._take(module, root)
            return
        whole = module.file.names.get(root)
        if whole is not None:
            dotted = f"{whole}.{rest}" if rest else whole
            place = self._place(module, dotted)
            if place is None and rest:  # an attribute of something imported
                place, dotted = self._place(module, whole), whole
            if place is not None:
                self.links[module.file.tree, dotted] = (place[0].file.tree, place[1])
                yield from self._take(*place)

    def _place(self, module: Module, dotted: str, depth: int = 0) -> Place | None:
        """Where an imported name is defined, through modules that only re-export it."""
        found = self.modules.find(module.file.path, dotted)
        if found is None or depth > _DEEPEST or not found[1] or "." in found[1]:
            return None
        other, name = self.modules.readable(found[0]), found[1]
        if other is None:
            return None
        if name in other.defines:
            follow = other is not self.start and ABOUT_TRAINING.search(other.file.text)
            return (other, name) if follow else None
        passed = other.file.names.get(name)
        if passed is not None:
            return self._place(other, passed, depth + 1)
        stars = [n[:-1] for alias, n in other.file.names.items() if alias == "*"]
        return next((p for s in stars if (p := self._place(other, s + name, depth + 1)) is not None), None)

    def _take(self, module: Module, name: str) -> Iterator[tuple[Module, ast.AST]]:
        for statement in module.defines[name]:
            size = (statement.end_lineno or statement.lineno) - statement.lineno + 1
            taken = self.taken.setdefault(module, {})
            if statement in taken or _is_model(statement) or self.lines + size > _MOST_LINES:
                continue
            taken[statement] = None
            self.lines += size
            yield module, statement


def _is_model(statement: ast.stmt) -> bool:
    """A class with a `forward`: what it computes is of no interest here, and it is often long."""
    return isinstance(statement, ast.ClassDef) and any(
        isinstance(inner, ast.FunctionDef) and inner.name == "forward" for inner in statement.body
    )
