"""Tell which collectives a call leads to, and whether the ranks on the other side of a test come to them as well."""

from __future__ import annotations

import ast
import builtins
import re
import sys
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from distdbg.lint.rule import Context
from distdbg.lint.script.collectives import Collective, collective
from distdbg.lint.script.ranks import RankGuard
from distdbg.lint.script.script import FUNCTIONS, Function, names_in
from distdbg.lint.script.wrapped import comes_wrapped

_DEEPEST = 4
_OF_A_MANAGER = ("__enter__", "__exit__")
#: a part of a test that asks whether there are several ranks: in a job all of them answer alike
SEVERAL = re.compile(
    r"rank|world_?size|initialized|is_available|(?:^|_)ddp|distributed(?!_?type)|n_?gpus?$|num_processes", re.IGNORECASE
)
#: first parts of calls that wait for no rank, `()` and `[]` for calls on a value; collectives are recognized before
_KNOWN = sys.stdlib_module_names | {
    "torch", "numpy", "tqdm", "pandas", "scipy", "sklearn", "matplotlib", "cv2", "PIL", "wandb", "tensorboardX", "yaml",
    "requests", "gdown", "huggingface_hub", "omegaconf", "()", "[]",
}  # fmt: skip
_WAITS_FOR_NOBODY = re.compile(
    r"(?:^|[._])log|print|writer|bar\.|\.(?:\w+_|append|extend|update|close|flush|to|cuda|cpu|eval|load_state_dict)$",
    re.IGNORECASE,
)


def collectives_reached(
    context: Context, call: ast.Call, *, maybe: bool = False
) -> Iterator[tuple[Collective, ast.Call]]:
    """The call itself, or what it leads to on every way, or `maybe` only some, through functions of this file."""
    entered = collective(context, call)
    if entered is not None:
        yield entered, call
        return
    seen: set[Function] = set()
    todo = [(f, 0) for f in context.values.callees(call) if f.name != "__init__"]
    while todo:
        function, depth = todo.pop()
        if function in seen or depth > _DEEPEST:
            continue
        seen.add(function)
        for inner in context.script.within(function, ast.Call):
            if context.script.function_of(inner) is not function or (context.ranks.guards(inner) and not maybe):
                continue
            entered = collective(context, inner) if maybe or not _only_a_way(context, inner) else None
            if entered is not None and (not entered.is_forward or comes_wrapped(context.values, inner, call)):
                yield entered, inner
            todo += [(f, depth + 1) for f in context.values.callees(inner)]


def _only_a_way(context: Context, call: ast.Call) -> bool:
    """Behind an `if` in its function: a caller on one rank may well not take that way.

    One that asks whether there are several ranks is none: `if is_initialized(): barrier()`.
    """
    below: ast.AST = call
    for outer in context.script.above(call):
        if isinstance(outer, (ast.IfExp, ast.Try)):
            return True
        if isinstance(outer, ast.If) and below is not outer.test and not _asks_for_several(context, outer, below):
            return True
        if outer is context.script.function_of(call):
            return False
        below = outer
    return False


def _asks_for_several(context: Context, outer: ast.If, below: ast.AST) -> bool:
    parts = outer.test.values if isinstance(outer.test, ast.BoolOp) else [outer.test]
    several = all(any(map(SEVERAL.search, names_in(p))) and not context.ranks.asks(p) for p in parts)
    return several and below in outer.body


class RankSides:
    """Tells whether the ranks on the other side of a guard come to such a collective as well.

    `if rank != 0: barrier()` … `if rank == 0: barrier()` is the common way to let rank 0 go first. So any other call of
    the same function that this guard does not cover the same way counts, if the rank has a say there; on the other side
    of the guard itself a call counts if it may lead to a collective. The calls of a function are counted once.
    """

    def __init__(self, context: Context) -> None:
        self._context, self._script = context, context.script
        self._sides: dict[RankGuard, int] = {}
        self._numbers: dict[tuple[bool, frozenset[str]], int] = {}
        self._calls: dict[ast.AST, list[ast.Call]] = defaultdict(list)
        for call in self._script.all(ast.Call):
            self._calls[self._script.function_of(call) or self._script.module_of(call)].append(call)
        self._guarded: dict[ast.AST, _GuardedCalls] = {}
        self._answers: dict[tuple[ast.AST, RankGuard, str], bool] = {}

    def come_too(self, guard: RankGuard, call: ast.Call, entered: Collective) -> bool:
        family = entered.operation.split("_", maxsplit=1)[0]
        return any(self._in_function(place, guard, family) for place in self._places(call))

    def _places(self, call: ast.Call) -> list[ast.AST]:
        """Its function and those that contain it (of a closure), or its file; a context manager's two are one."""
        script, function, owner = self._script, self._script.function_of(call), self._script.class_of(call)
        if function is None:
            return [script.module_of(call)]
        if function.name in _OF_A_MANAGER and owner is not None:
            return [f for f in owner.body if isinstance(f, FUNCTIONS) and f.name in _OF_A_MANAGER]
        places: list[ast.AST] = []
        while function is not None:
            places.append(function)
            function = script.function_of(function)
        return places

    def _in_function(self, place: ast.AST, guard: RankGuard, family: str) -> bool:
        key = place, guard, family
        if key not in self._answers:
            if place not in self._guarded:
                self._guarded[place] = self._count(place)
            calls, side = self._guarded[place], self._side(guard)
            elsewhere = calls.of_family[family] > calls.on_side[family, side]
            self._answers[key] = elsewhere or self._may_come_unseen(calls.unknown, guard, side)
        return self._answers[key]

    def _count(self, place: ast.AST) -> _GuardedCalls:
        found = _GuardedCalls()
        for call in self._calls[place]:
            guards = self._context.ranks.guards(call)
            if not guards:
                continue
            families = {
                e.operation.split("_", maxsplit=1)[0] for e, _ in collectives_reached(self._context, call, maybe=True)
            }
            sides = {self._side(guard) for guard in guards} if families else set()
            found.of_family.update(families)
            found.on_side.update((family, side) for family in families for side in sides)
            if _unknown(self._context, call):
                found.unknown.append(call)
        return found

    def _may_come_unseen(self, unknown: list[ast.Call], guard: RankGuard, side: int) -> bool:
        """On the other side of the guard itself is a call whose function is not in sight."""
        begin, end = self._script.begin, self._script.end
        block = self._script.parents[guard.node]
        first = bisect_left(unknown, begin[guard.node], key=begin.__getitem__)
        for call in unknown[first : bisect_left(unknown, end[block], key=begin.__getitem__)]:
            theirs = self._context.ranks.guards(call)
            if any(g.node is guard.node for g in theirs) and not any(self._side(g) == side for g in theirs):
                return True
        return False

    def _side(self, guard: RankGuard) -> int:
        if guard not in self._sides:
            side = _side(self._context, guard)
            self._sides[guard] = self._numbers.setdefault(side, len(self._numbers))
        return self._sides[guard]


@dataclass
class _GuardedCalls:
    """Guarded calls of one function: numbers of those that lead to a collective, and those that lead out of sight."""

    of_family: Counter[str] = field(default_factory=Counter)
    on_side: Counter[tuple[str, int]] = field(default_factory=Counter)
    unknown: list[ast.Call] = field(default_factory=list)


def _side(context: Context, guard: RankGuard) -> tuple[bool, frozenset[str]]:
    """Which ranks it lets in, as far as its text says: what is behind `if rank != 0: return` is in `if rank == 0`."""
    test, otherwise = guard.test, guard.otherwise
    if test is None:
        return otherwise, frozenset((str(id(guard.node)),))
    if isinstance(test, ast.BoolOp):
        alone = isinstance(test.op, ast.And) and not otherwise
        parts = [part for part in test.values if context.ranks.asks(part)] if alone else [test]
        return otherwise, frozenset(map(ast.dump, parts))
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            test, otherwise = operand, not otherwise
        case ast.Compare(left=left, ops=[ast.NotEq()], comparators=others):
            test, otherwise = ast.Compare(left=left, ops=[ast.Eq()], comparators=others), not otherwise
    return otherwise, frozenset((ast.dump(test),))


def _unknown(context: Context, call: ast.Call) -> bool:
    """It leads where this file does not show what is done: `run_actor()` of another file."""
    name = context.script.call_names[call]
    root = name.partition(".")[0]
    if context.values.callees(call) or root in _KNOWN or hasattr(builtins, name):
        return False
    return not _WAITS_FOR_NOBODY.search(name)
