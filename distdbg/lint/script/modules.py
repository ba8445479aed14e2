"""Resolve imports between files that are linted together, and what a script needs of them.

A script is not joined with whole modules, but with those functions, classes and variables of them that it comes to:
by name, from there on by name again. So what it costs goes with what is used, not with how large a package is.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from distdbg.lint.script.file import File, ImportedCode, blocks
from distdbg.lint.script.parsing import UnreadableScript, parse
from distdbg.lint.script.script import Script, names_in
from distdbg.lint.script.words import words_of
from distdbg.lint.script.work_limit import TookTooLong, WorkLimit

#: a file without one of these words is about no training, and nothing of it is worth following
_ABOUT_TRAINING = re.compile(
    r"\b(?:torch|accelerate|transformers|lightning)\b|\.backward\(|\.step\(|DataLoader|\.eval\(|_process\(|\.prepare\(|(?:\b|_)(?:rank|RANK)\b"
)
_PARTS = (
    "torch",
    "accelerate",
    "transformers",
    "lightning",
    ".backward(",
    ".step(",
    "DataLoader",
    ".eval(",
    "_process(",
    ".prepare(",
    "rank",
    "RANK",
)
_MOST_LINES = 3000
#: characters of source whose trees are kept: a tree takes some thirty times as much
_MOST_KEPT = 2_000_000
_DEEPEST = 6
#: (path of a file, name defined at its top level)
Place = tuple[str, str]


@dataclass(frozen=True)
class Piece:
    """A statement at the top level of a file, by its place there: names that it reads, its text, its lines.

    `mentions` are those names that may lead to a linted file, dotted as written (`utils.save`), each once. A model
    is not followed.
    """

    place: int
    mentions: tuple[str, ...]
    text: str
    lines: int
    is_model: bool

    @cached_property
    def words(self) -> frozenset[str]:
        return words_of(self.text)


@dataclass(eq=False)
class Module:
    """What is kept of a file when its tree is not: imported names, and its pieces by what they define.

    `stars` are the modules of which it imports all names: `utils.`.
    """

    path: str
    names: Mapping[str, str]
    stars: tuple[str, ...]
    pieces: tuple[Piece, ...]
    defines: Mapping[str, tuple[Piece, ...]]
    about_training: bool


def _module(file: File, leading: Set[str], *, about_training: bool) -> Module:
    """`leading` are the names in it that may be imported from a file that is linted, too."""
    defines: dict[str, tuple[Piece, ...]] = {}
    defined = [list(_defined(statement)) for statement in file.tree.body]
    wanted = frozenset(leading).union(*defined)
    pieces: list[Piece] = []
    for place, statement in enumerate(file.tree.body):
        mentions = tuple(dict.fromkeys(map(sys.intern, _mentioned(file, statement, wanted))))
        lines = (statement.end_lineno or statement.lineno) - statement.lineno + 1
        piece = Piece(place, mentions, file.text_of(statement), lines, _is_model(statement))
        pieces.append(piece)
        for name in defined[place]:
            defines[name] = (*defines.get(name, ()), piece)
    return Module(file.path, file.names, file.stars, tuple(pieces), defines, about_training)


def _defined(statement: ast.stmt) -> Iterator[str]:
    """What a statement at the top of a file defines, in the branches of an `if` or a `try`, too."""
    todo: list[ast.AST] = [statement]
    while todo:
        one = todo.pop()
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield one.name
        elif isinstance(one, ast.Assign):
            yield from (target.id for target in one.targets if isinstance(target, ast.Name))
        elif isinstance(one, (ast.If, ast.Try, ast.ExceptHandler)) and not _is_start(one):
            todo += [inner for name in blocks(type(one)) for inner in getattr(one, name)]


def _is_start(node: ast.AST) -> bool:
    """`if __name__ == "__main__":` runs where no other file imports it."""
    return isinstance(node, ast.If) and "__name__" in names_in(node.test)


@dataclass(frozen=True)
class Joined:
    """A file and what it reaches in others, by path: no tree of it is needed yet.

    `imported` are places of statements; `links` (path, dotted name) -> (path, name). `consulted` are all files that
    this depends on.
    """

    path: str
    imported: Mapping[str, tuple[int, ...]]
    links: Mapping[Place, Place]
    words: frozenset[str]
    consulted: frozenset[str]


def _mentioned(file: File, statement: ast.stmt, wanted: Set[str]) -> Iterator[str]:
    """The wanted names, dotted as written, the last one first."""
    nodes = file.nodes(statement)
    for name in reversed(nodes.of_kind(ast.Name)):
        if name.id not in wanted:
            continue  # most names
        dotted, outer = name.id, nodes.parents[name]
        while isinstance(outer, ast.Attribute):
            dotted, outer = f"{dotted}.{outer.attr}", nodes.parents[outer]
        yield dotted


class Modules:
    """`texts` by path, as they were named."""

    def __init__(self, texts: Mapping[str, str], limit: WorkLimit | None = None) -> None:
        self.texts = texts
        self._limit = limit
        self._files: OrderedDict[str, File] = OrderedDict()
        self._size = 0
        self._modules: dict[str, Module] = {}
        self._about_training: dict[str, bool] = {}
        self._places: dict[tuple[str, str], tuple[Place | None, frozenset[str]]] = {}
        self._starred: dict[str, frozenset[str]] = {}
        self._words = {word for path in texts for word in PurePosixPath(path).with_suffix("").parts}
        self._by_place = {PurePosixPath(path).as_posix(): path for path in texts if path.endswith(".py")}
        #: every folder that has a file, somewhere, and every file without its ending
        self._places_of_files = {
            part for place in self._by_place for part in (place[:-3], *map(str, PurePosixPath(place).parents))
        }
        self._folders: dict[str, list[str]] = {}

    def about_training(self, path: str) -> bool:
        """Is anything of it worth following? Most texts are told apart by parts of words, which are found fast."""
        if path not in self._about_training:
            text = self.texts[path]
            found = any(part in text for part in _PARTS) and _ABOUT_TRAINING.search(text) is not None
            self._about_training[path] = found
        return self._about_training[path]

    def file(self, path: str) -> File:
        """A file with its tree, which is kept while it is among the last ones. Raises UnreadableScript."""
        kept = self._files.get(path)
        if kept is not None:
            self._files.move_to_end(path)
            return kept
        if self._limit is not None:
            self._limit.check()  # the parser cannot be interrupted: 1 MB, the most that it gets, takes up to 3 s
        text = self.texts[path]
        kept = self._files[path] = File(path, text, parse(text))
        self._size += len(text)
        while self._size > _MOST_KEPT and len(self._files) > 1:
            self._size -= len(self._files.popitem(last=False)[1].text)
        return kept

    def module(self, path: str) -> Module:
        """What is defined in a file, worked out once. Raises UnreadableScript."""
        if path not in self._modules:
            file = self.file(path)
            self._modules[path] = _module(file, self._leading(file), about_training=self.about_training(path))
        return self._modules[path]

    def _leading(self, file: File) -> set[str]:
        """Its imported names that may come from a linted file, by the first word of where they are from."""
        found = {alias for alias, whole in file.names.items() if whole.lstrip(".").partition(".")[0] in self._words}
        return found.union(*(self._names_behind(file.path, star) for star in file.stars))

    def _names_behind(self, importer: str, star: str) -> frozenset[str]:
        """What `from utils import *` may bring: all that is defined there, or imported."""
        found = self.find(importer, star + "*")
        if found is None or found[1] != "*":
            return frozenset()
        if found[0] not in self._starred:
            self._starred[found[0]] = frozenset()  # where two files import each other
            module = self.readable(found[0])
            if module is not None:
                behind = (self._names_behind(found[0], inner) for inner in module.stars)
                self._starred[found[0]] = frozenset((*module.defines, *module.names)).union(*behind)
        return self._starred[found[0]]

    def joined(self, path: str) -> Joined:
        """The file with what it reaches in others. Raises UnreadableScript."""
        own, file = frozenset({path}), self.file(path)
        if len(self._by_place) < 2 or _is_test(path) or not self._leading(file):
            return Joined(path, {}, {}, words_of(self.texts[path]), own)
        return _Linker(self, self.module(path)).run()

    def script(self, joined: Joined) -> Script:
        """All that was joined, in one index. Raises UnreadableScript."""
        files = {
            path: self.file(path) for path in (joined.path, *joined.imported, *(p for p, _ in joined.links.values()))
        }
        imported = [
            ImportedCode(files[path], tuple(files[path].tree.body[n] for n in places))
            for path, places in joined.imported.items()
        ]
        links = {
            (files[a].tree, dotted): (files[b].tree, name)
            for (a, dotted), (b, name) in joined.links.items()
            if a in files
        }
        if self._limit is None:
            return Script(files[joined.path], imported, links)
        return Script(files[joined.path], imported, links, self._limit.check)

    def find(self, importer: str, dotted: str) -> tuple[str, str] | None:
        """(path, rest) of `.engine.train` or `package.engine.train`: the file that it leads into, and what is in it."""
        name = dotted.lstrip(".")
        dots, parts = len(dotted) - len(name), name.split(".")
        if parts[0] not in self._words:
            return None
        folders = self._folders_above(importer)[dots - 1 : dots] if dots else self._folders_of(importer, parts[0])
        for above in folders:
            if above + parts[0] not in self._places_of_files:
                continue  # most folders
            for count in range(len(parts), 0, -1):
                base = above + "/".join(parts[:count])
                for candidate in (f"{base}.py", f"{base}/__init__.py"):
                    if candidate in self._by_place and self._by_place[candidate] != importer:
                        return self._by_place[candidate], ".".join(parts[count:])
        return None

    def _folders_of(self, importer: str, package: str) -> list[str]:
        """Where an imported package may be: in a folder above, else in the one that has it (`src/`, `python/`)."""
        above = self._folders_above(importer)
        if any(folder + package in self._places_of_files for folder in above):
            return above
        return self._packages.get(package, [])[:1] if len(self._packages.get(package, [])) == 1 else []

    @cached_property
    def _packages(self) -> dict[str, list[str]]:
        """By its name, the folders that have a package and are none themselves."""
        found: dict[str, list[str]] = {}
        for place in self._by_place:
            package, _, name = place.rpartition("/")
            folder, _, last = package.rpartition("/")
            inside = f"{folder}/__init__.py" if folder else "__init__.py"
            if name == "__init__.py" and package and inside not in self._by_place:
                found.setdefault(last, []).append(f"{folder}/" if folder else "")
        return found

    def _folders_above(self, path: str) -> list[str]:
        """Its folder and all above that one, as what a path in each begins with."""
        if path not in self._folders:
            above = map(str, PurePosixPath(path).parents)
            self._folders[path] = ["" if one == "." else f"{one.rstrip('/')}/" for one in above]
        return self._folders[path]

    def place(self, importer: str, dotted: str, depth: int = 0) -> tuple[Place | None, frozenset[str]]:
        """Where an imported name is defined, through modules that only re-export it, and the files that say so."""
        key = importer, dotted
        if key not in self._places:
            self._places[key] = self._place(importer, dotted, depth)
        return self._places[key]

    def _place(self, importer: str, dotted: str, depth: int) -> tuple[Place | None, frozenset[str]]:
        found = self.find(importer, dotted)
        if found is None or depth > _DEEPEST or not found[1] or "." in found[1]:
            return None, frozenset()
        other, name = self.readable(found[0]), found[1]
        consulted = frozenset({found[0]})
        if other is None:
            return None, consulted
        if name in other.defines:
            return (found if other.about_training else None), consulted
        for passed in [other.names[name]] if name in other.names else [star + name for star in other.stars]:
            place, asked = self.place(found[0], passed, depth + 1)
            consulted |= asked
            if place is not None:
                return place, consulted
        return None, consulted

    def readable(self, path: str) -> Module | None:
        """The module of a file, if it is Python."""
        try:
            return self.module(path)
        except TookTooLong:
            raise
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
        self.taken: dict[str, dict[int, Piece]] = {}
        self.links: dict[Place, Place] = {}
        self.lines = 0
        self._consulted: set[str] = {start.path}
        self._asked: set[tuple[str, str]] = set()

    def run(self) -> Joined:
        todo = deque[tuple[Module, Piece]]((self.start, piece) for piece in self.start.pieces)
        while todo:  # the nearest first: there is a limit
            module, piece = todo.popleft()
            for name in piece.mentions:
                if (module.path, name) not in self._asked:
                    self._asked.add((module.path, name))
                    todo += self._follow(module, name)
        words = words_of(self.modules.texts[self.start.path])
        return Joined(
            self.start.path,
            {path: tuple(sorted(taken)) for path, taken in self.taken.items() if taken},
            self.links,
            words.union(*(piece.words for taken in self.taken.values() for piece in taken.values())),
            frozenset(self._consulted),
        )

    def _follow(self, module: Module, name: str) -> Iterator[tuple[Module, Piece]]:
        """The new definitions that a name leads to: in another file, or in its own if that is not the script itself."""
        root, _, rest = name.partition(".")
        if root in module.defines:
            if module is not self.start:
                yield from self._take(module, root)
            return
        if root not in module.names:
            yield from self._follow_stars(module, root)
            return
        whole = module.names[root]
        dotted = f"{whole}.{rest}" if rest else whole
        place = self._place(module, dotted)
        if place is None and rest:  # an attribute of something imported
            place, dotted = self._place(module, whole), whole
        if place is not None:
            self.links[module.path, dotted] = place
            yield from self._take(self.modules.module(place[0]), place[1])

    def _follow_stars(self, module: Module, name: str) -> Iterator[tuple[Module, Piece]]:
        """Of several modules whose names are all imported the last one counts."""
        places = (self._place(module, star + name) for star in reversed(module.stars))
        place = next((place for place in places if place is not None), None)
        if place is not None:
            self.links[module.path, name] = place
            yield from self._take(self.modules.module(place[0]), place[1])

    def _place(self, module: Module, dotted: str) -> Place | None:
        place, consulted = self.modules.place(module.path, dotted)
        self._consulted |= consulted
        return place if place is not None and place[0] != self.start.path else None

    def _take(self, module: Module, name: str) -> Iterator[tuple[Module, Piece]]:
        for piece in module.defines[name]:
            taken = self.taken.setdefault(module.path, {})
            if piece.place in taken or piece.is_model or self.lines + piece.lines > _MOST_LINES:
                continue
            taken[piece.place] = piece
            self.lines += piece.lines
            yield module, piece


def _is_model(statement: ast.stmt) -> bool:
    """A class with a `forward`: what it computes is of no interest here, and it is often long."""
    return isinstance(statement, ast.ClassDef) and any(
        isinstance(inner, ast.FunctionDef) and inner.name == "forward" for inner in statement.body
    )
