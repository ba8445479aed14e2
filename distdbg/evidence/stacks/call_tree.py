"""Merge the call trees of all ranks, as STAT does: shared calls are one branch, which forks where ranks differ.

Stacks are put into classes first, so the tree grows with the number of different stacks, not of ranks. The user's
functions part by the line that they are at; functions of libraries do not: which line of torch polls is chance. A run
of library frames that nobody leaves is one entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from distdbg.evidence.dump import Dump
from distdbg.evidence.frames import package_of
from distdbg.evidence.rank_set import RankSet
from distdbg.evidence.stacks.classes import Path, Paths, StackClasses, Step, paths_of_rank
from distdbg.evidence.stacks.threads import Frame

Kind = Literal["frame", "line", "library", "words"]
_Key = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the tree.

    frame: a function of the user's, `line` 0 where the ranks are at several. line: one of these. library: `frames` of
    library code; `function` is the innermost. words: for what is no frame, in `function`.
    """

    kind: Kind
    function: str
    file: str = ""
    line: int = 0
    frames: tuple[Frame, ...] = ()
    #: the line of the script itself, where it was kept
    source: str = ""

    @property
    def packages(self) -> str:
        """`torch, multiprocessing`: whose frames a library entry holds."""
        names = list(dict.fromkeys(package_of(f.file) for f in self.frames))
        return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


@dataclass(frozen=True, slots=True)
class Branch:
    """A stretch that all of `ranks` share, and how it goes on. `here` are those of them that end in it."""

    ranks: RankSet
    entries: tuple[Entry, ...]
    branches: tuple[Branch, ...]
    here: RankSet
    #: the C code at the end of it, where one rank's was sampled
    native: str = ""


@dataclass(frozen=True)
class CallTree:
    branches: tuple[Branch, ...] = ()
    classes: int = 0
    ranks: RankSet = field(default_factory=RankSet)

    def leaves(self) -> Iterator[tuple[tuple[Branch, ...], Branch]]:
        """Every branch that ranks end in, with those above it."""
        todo: list[tuple[tuple[Branch, ...], Branch]] = [((), branch) for branch in reversed(self.branches)]
        while todo:
            above, branch = todo.pop()
            if branch.here:
                yield above, branch
            todo += [((*above, branch), inner) for inner in reversed(branch.branches)]


class _CallNode:
    __slots__ = ("children", "frame", "here", "native", "ranks")

    def __init__(self, frame: Step | None) -> None:
        self.frame = frame
        self.ranks = 0
        self.here = 0
        self.native = ""
        self.children: dict[_Key, _CallNode] = {}


def call_tree(
    classes: StackClasses, source: Callable[[str, int], str] | None = None, natives: Mapping[Path, str] | None = None
) -> CallTree:
    """`source` gives a script's line, `natives` the C code at the end of a path."""
    known = classes.classes()
    root = _CallNode(None)
    for paths, ranks in known:
        _grow(root, paths, ranks.bits, natives or {})
    lines = source or (lambda _file, _line: "")
    branches = [_branch(key, node, lines) for key, node in root.children.items()]
    return CallTree(_ordered(branches), len(known), RankSet(root.ranks))


def _grow(root: _CallNode, paths: Paths, bits: int, natives: Mapping[Path, str]) -> None:
    root.ranks |= bits
    for path in paths:
        node = root
        for step in path:
            for key in _keys(step):
                inner = node.children.get(key)
                if inner is None:
                    inner = node.children[key] = _CallNode(step)
                node = inner
                node.ranks |= bits
        node.here |= bits
        node.native = node.native or natives.get(path, "")


def _keys(step: Step) -> tuple[_Key, ...]:
    if isinstance(step, str):
        return (("words", step, 0),)
    function = (step.function, step.file, -1)
    return (function, ("line", "", step.line)) if step.users else (function,)


def _branch(key: _Key, node: _CallNode, source: Callable[[str, int], str]) -> Branch:
    """Follow a node as long as all its ranks continue together."""
    chain = [(key, node)]
    while not node.here and len(node.children) == 1:
        ((key, node),) = node.children.items()
        chain.append((key, node))
    inner = [_branch(key, child, source) for key, child in node.children.items()]
    return Branch(RankSet(node.ranks), tuple(_entries(chain, source)), _ordered(inner), RankSet(node.here), node.native)


def _ordered(branches: Iterable[Branch]) -> tuple[Branch, ...]:
    return tuple(sorted(branches, key=lambda b: (-len(b.ranks), b.ranks.first)))


def _entries(chain: list[tuple[_Key, _CallNode]], source: Callable[[str, int], str]) -> Iterator[Entry]:
    library: list[Frame] = []
    for number, (key, node) in enumerate(chain):
        step = node.frame
        if library and (isinstance(step, str) or (step is not None and step.users)):
            yield _library(library)
            library = []
        if isinstance(step, str):
            yield Entry("words", step)
        elif step is not None and not step.users:
            library.append(step)
        elif step is not None and key[0] == "line" and not key[1]:
            if number == 0:  # its function is the end of the branch above
                yield Entry("line", step.function, step.file, step.line, (step,), source(step.file, step.line))
        elif step is not None:
            one = number + 1 < len(chain)  # the next of the chain is its only line
            text = source(step.file, step.line) if one else ""
            yield Entry("frame", step.function, step.file, step.line if one else 0, (step,), text)
    if library:
        yield _library(library)


def _library(frames: list[Frame]) -> Entry:
    last = frames[-1]
    return Entry("library", last.function, last.file, last.line, tuple(frames))


def natives_of(dump: Dump) -> dict[Path, str]:
    """What a path's end is doing in C++: the innermost function that has a name of its own."""
    found: dict[Path, str] = {}
    for rank in dump.ranks.values():
        main = rank.native_judged
        if main is None:
            continue
        inner = []
        for frame in main.frames:
            if not frame.native:
                break
            inner.append(frame)
        named = next((f.function for f in inner if "::" in f.function and not f.function.startswith("std::")), "")
        if named:
            found.setdefault(paths_of_rank(rank)[0], f"{named[:100]} (rank {rank.rank})")
    return found
