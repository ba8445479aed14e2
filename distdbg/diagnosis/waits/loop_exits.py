"""Find the loop that one side of a divergence has left while the other side is still in it, and the ways out of it.

Read from the text of the script, which is parsed and never run, and from the lines that the ranks stand in.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from distdbg.diagnosis.waits.branches import RankLines
from distdbg.evidence.stacks.threads import Frame

_Loop = ast.For | ast.AsyncFor | ast.While
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True)
class WayOut:
    """A statement that leaves a loop before its end: `text` is `break`, `return` or `except …`; `condition` is the `if`
    around it, empty if there is none. Both lines are 1-based."""

    line: int
    text: str
    condition: str = ""


@dataclass(frozen=True)
class LoopExit:
    """`left` have left the loop at `line` of `file`, and `inside` are still in it. `text` is its first line.

    `may_end`: its own end may come at another iteration on another rank, so that it need not have been left early.
    """

    left: tuple[int, ...]
    inside: tuple[int, ...]
    file: str
    line: int
    text: str
    ways: tuple[WayOut, ...]
    may_end: bool


def find_loop_exit(lines: RankLines, one: tuple[int, ...], other: tuple[int, ...]) -> LoopExit | None:
    """Return the loop that all ranks of one side have left and in which all ranks of the other side stand."""
    for left, inside in ((one, other), (other, one)):
        stacks = [{tuple(lines.frames.get(rank, ())) for rank in ranks} for ranks in (left, inside)]
        exits = {_find(lines, gone, still) for gone in stacks[0] for still in stacks[1]}
        found = exits.pop() if len(exits) == 1 else None
        if found is not None:
            file, loop, returns, line = found
            ways = tuple(_ways_out(_parents(lines.sources.get(file, "")), loop, line, returns=returns))
            return LoopExit(left, inside, file, loop.lineno, _head(loop), ways, _may_end(loop))
    return None


_Found = tuple[str, _Loop, bool, int]


def _head(loop: _Loop) -> str:
    if isinstance(loop, ast.While):
        return f"while {_text(loop.test)}"
    return f"for {_text(loop.target)} in {_text(loop.iter)}"


def _text(node: ast.expr) -> str:
    """The expression as Python writes it; `…` for one that is nested too deeply for that."""
    try:
        return ast.unparse(node)
    except RecursionError:
        return "…"


def _find(lines: RankLines, left: Sequence[Frame], inside: Sequence[Frame]) -> _Found | None:
    """(file, loop, whether a `return` in it leads to where `left` stands, line of `left`). Both are stacks of the
    user's lines, the innermost first."""
    gone, still = left[::-1], inside[::-1]
    at = next((n for n, (a, b) in enumerate(zip(gone, still, strict=False)) if a != b), None)
    if at is None or (gone[at].file, gone[at].function) != (still[at].file, still[at].function):
        return None
    file, behind = gone[at].file, gone[at].line
    if (loop := _outermost_loop(lines, still[at], behind)) is not None:
        return file, loop, False, behind
    if behind <= still[at].line or at + 1 >= len(still):
        return None
    called = still[at + 1]  # the call that one side has returned from
    loop = _outermost_loop(lines, called, None)
    return (called.file, loop, True, 0) if loop is not None else None


def _outermost_loop(lines: RankLines, frame: Frame, behind: int | None) -> _Loop | None:
    """Return the outermost loop around the line of `frame` in its function; with `behind`, one that ends before it."""
    around = _loops_around(lines.sources.get(frame.file, ""), frame.line)
    ended = [loop for loop in around if behind is None or (loop.end_lineno or loop.lineno) < behind]
    return ended[-1] if ended else None


def _loops_around(source: str, line: int) -> Sequence[_Loop]:
    """The loops of the same function whose body has that line, innermost first."""
    parents = _parents(source)
    node: ast.AST | None = min(
        (n for n in parents if isinstance(n, ast.stmt) and n.lineno <= line <= (n.end_lineno or n.lineno)),
        key=lambda n: (n.end_lineno or n.lineno) - n.lineno,
        default=None,
    )
    found: list[_Loop] = []
    while node is not None and not isinstance(node, _SCOPES):
        parent = parents[node]
        if isinstance(parent, _LOOPS) and node in parent.body:
            found.append(parent)
        node = parent if isinstance(parent, (ast.stmt, ast.ExceptHandler, ast.match_case)) else None
    return found


@lru_cache(maxsize=64)
def _parents(source: str) -> dict[ast.AST, ast.AST | None]:
    """Every node of a script with the node around it; empty if the text is no Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    parents: dict[ast.AST, ast.AST | None] = {tree: None}
    for node in ast.walk(tree):
        parents.update(dict.fromkeys(ast.iter_child_nodes(node), node))
    return parents


def _ways_out(parents: dict[ast.AST, ast.AST | None], loop: _Loop, behind: int, *, returns: bool) -> Iterator[WayOut]:
    for node in sorted(_exits(loop.body), key=lambda node: node.lineno):
        if isinstance(node, ast.Break) and _loop_of(parents, node) is loop:
            yield WayOut(node.lineno, "break", _condition(parents, node, loop))
        elif returns and isinstance(node, ast.Return):
            yield WayOut(node.lineno, "return", _condition(parents, node, loop))
    around = parents[loop]
    while around is not None and not isinstance(around, _SCOPES):
        if isinstance(around, ast.Try) and (returns or (around.end_lineno or 0) < behind):
            for handler in around.handlers:
                caught = f" {_text(handler.type)}" if handler.type is not None else ""
                yield WayOut(handler.lineno, f"except{caught}")
        around = parents[around]


def _exits(body: Sequence[ast.stmt]) -> Iterator[ast.Break | ast.Return]:
    """All `break` and `return` below, but for those of other functions."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Break, ast.Return)):
            yield node
        waiting += () if isinstance(node, _SCOPES) else ast.iter_child_nodes(node)


def _loop_of(parents: dict[ast.AST, ast.AST | None], node: ast.AST) -> ast.AST | None:
    """The loop that a `break` leaves: one in an `else` of a loop leaves the loop around that."""
    parent = parents[node]
    while parent is not None and not (isinstance(parent, _LOOPS) and node in parent.body):
        node, parent = parent, parents[parent]
    return parent


def _condition(parents: dict[ast.AST, ast.AST | None], node: ast.AST, loop: _Loop) -> str:
    """The innermost `if` around a statement, as `if loss > 2` or `not (loss > 2)`."""
    parent = parents[node]
    while parent is not None and parent is not loop:
        if isinstance(parent, ast.If):
            test = _text(parent.test)
            return f"if {test}" if node in parent.body else f"if not ({test})"
        node, parent = parent, parents[parent]
    return ""


def _may_end(loop: _Loop) -> bool:
    """False for `while True` and for a `range` of constants, which all ranks count alike."""
    match loop:
        case ast.While(test=ast.Constant(value=value)):
            return not value
        case ast.For(iter=ast.Call(func=ast.Name(id="range"), args=arguments)):
            return not all(isinstance(argument, ast.Constant) for argument in arguments)
    return True
