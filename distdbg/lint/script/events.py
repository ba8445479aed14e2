"""List what a piece of code does to training, in the order of the source, through functions of the same file.

An event has the `if` branches around it: events in branches that exclude each other are recognized.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Literal

from distdbg.lint.script.given import Given, decided, given_constants
from distdbg.lint.script.script import FUNCTIONS, Function, Script, argument, last_word, receiver
from distdbg.lint.script.values import ValueFlow

Kind = Literal["backward", "step", "scaler_step", "zero", "clip", "unscale", "update", "schedule", "eval", "train",
               "set_epoch"]  # fmt: skip
#: the step of an optimizer, by itself or by a scaler
STEPS: tuple[Kind, ...] = ("step", "scaler_step")
_BY_NAME: dict[str, Kind] = {
    "zero_grad": "zero", "_foreach_zero_": "zero", "set_epoch": "set_epoch", "unscale_": "unscale",
    "clip_grad_norm_": "clip", "clip_grad_value_": "clip", "clip_grad_norm": "clip",
}  # fmt: skip
_SCALER = re.compile(r"scaler", re.IGNORECASE)
_OPTIMIZER = re.compile(r"optim|(?:^|_)opt(?:_|$|\d)", re.IGNORECASE)
_SCHEDULER = re.compile(r"sched", re.IGNORECASE)
#: objects that step, clear and divide by themselves
_MANAGED = re.compile(r"accelerator|engine|fabric|trainer|manager|strategy|deepspeed", re.IGNORECASE)
_DEEPEST = 5
_MOST = 400


@dataclass(frozen=True)
class TrainingEvent:
    """`call` is the node itself; `top` the call in the code that was asked about through which it is reached."""

    kind: Kind
    call: ast.AST
    top: ast.AST
    branches: tuple[tuple[ast.AST, bool], ...]

    @property
    def receiver(self) -> ast.expr | None:
        return receiver(self.call)

    def excludes(self, other: TrainingEvent) -> bool:
        """Whether the two are in different branches of one `if`."""
        mine = dict(self.branches)
        return any(mine.get(node, held) != held for node, held in other.branches)


class Events:
    def __init__(self, script: Script, values: ValueFlow) -> None:
        self.script = script
        self.values = values
        self._kinds: dict[ast.AST, Kind] = {}
        self._in_scope: dict[ast.AST, tuple[list[ast.AST], list[int]]] = {}
        for call in script.all(ast.Call):
            kind = self._classify(call)
            if kind:
                self._kinds[call] = kind
        for assigned in script.all(ast.Assign):
            if any(isinstance(t, ast.Attribute) and t.attr == "grad" for t in assigned.targets):
                self._kinds[assigned] = "zero"

    def of(self, *kinds: Kind) -> list[ast.AST]:
        """Every such event of the file, at its own place."""
        found = [node for kind in kinds for node in self._of_kind.get(kind, [])]
        return found if len(kinds) == 1 else sorted(found, key=self.script.begin.__getitem__)

    @cached_property
    def _of_kind(self) -> dict[Kind, list[ast.AST]]:
        """By kind the events, in the order of the source."""
        found: dict[Kind, list[ast.AST]] = defaultdict(list)
        for node in sorted(self._kinds, key=self.script.begin.__getitem__):
            found[self._kinds[node]].append(node)
        return found

    def kind(self, node: ast.AST) -> Kind | None:
        return self._kinds.get(node)

    def is_between(self, kind: Kind, first: ast.AST, last: ast.AST) -> bool:
        """Whether such an event begins between the beginnings of two nodes."""
        begin = self.script.begin
        events = self.of(kind)
        place = bisect_right(events, begin[first], key=begin.__getitem__)
        return place < len(events) and begin[events[place]] < begin[last]

    def inside(self, node: ast.AST) -> list[TrainingEvent]:
        """What `node` does, its own functions inlined; cut off after some hundred events."""
        return list(islice(self._inside(node, None, (), frozenset(), {}), _MOST))

    def _inside(
        self,
        node: ast.AST,
        top: ast.AST | None,
        above: tuple[tuple[ast.AST, bool], ...],
        seen: frozenset[ast.AST],
        given: Given,
    ) -> Iterator[TrainingEvent]:
        scope = node if isinstance(node, FUNCTIONS) else self.script.scopes[node]
        own, begins = self._own(scope)
        first = bisect_left(begins, self.script.begin[node])
        for inner in own[first : bisect_left(begins, self.script.end[node])]:
            kind = self._kinds.get(inner)
            callees = self._leading(inner) if isinstance(inner, ast.Call) and len(seen) < _DEEPEST else []
            if not kind and not callees:
                continue
            branches = self._branches(inner, node)
            if given and _decided_against(branches, given):
                continue
            if kind:
                kind = self._given_mode(inner, kind, given) if kind in ("train", "eval") else kind
                yield TrainingEvent(kind, inner, top or inner, above + branches)
            for function in callees:
                if isinstance(inner, ast.Call) and function not in seen and function.name != "__init__":
                    its = given_constants(self.script, function, inner, given)
                    yield from self._inside(function, top or inner, above + branches, seen | {function}, its)

    def left_out(self, node: ast.AST, function: Function, given: Given) -> bool:
        """Whether a call with these constants never comes to this node of the function."""
        if _decided_against(self._branches(node, function), given):
            return True
        begin, end = self.script.begin, self.script.end
        before = (one for one in self.script.within(function, ast.If) if begin[one] < begin[node])
        beside = (one for one in before if begin[node] < end[self.script.block_of(one)[-1]])
        return any(isinstance(s, (ast.Return, ast.Raise)) for one in beside for s in _decided_block(one, given)[-1:])

    def _own(self, scope: ast.AST) -> tuple[list[ast.AST], list[int]]:
        """What does something in a scope itself, or may call something that does, in order, and where each begins."""
        if scope not in self._in_scope:
            calls = self._calls.get(scope, [])
            own: list[ast.AST] = [call for call in calls if call in self._kinds or self._leading(call)]
            own += [n for n in self._kinds if isinstance(n, ast.Assign) and self.script.scopes[n] is scope]
            own.sort(key=self.script.begin.__getitem__)
            self._in_scope[scope] = own, [self.script.begin[node] for node in own]
        return self._in_scope[scope]

    def _leading(self, call: ast.Call) -> list[Function]:
        """Functions that the call may run, and that come to an event."""
        return [function for function in self.values.callees(call) if function in self._come_to_one]

    @cached_property
    def _come_to_one(self) -> set[ast.AST]:
        """Functions with an event in them, or in what they call."""
        todo = [self.script.scopes[node] for node in self._kinds]
        found: set[ast.AST] = set()
        while todo:
            scope = todo.pop()
            if scope not in found:
                found.add(scope)
                calls = self.values.callers.get(scope, []) if isinstance(scope, FUNCTIONS) else []
                todo += [self.script.scopes[call] for call in calls]
        return found

    @cached_property
    def _calls(self) -> dict[ast.AST, list[ast.Call]]:
        """By scope the calls in it, in order."""
        found: dict[ast.AST, list[ast.Call]] = defaultdict(list)
        for call in self.script.all(ast.Call):
            found[self.script.scopes[call]].append(call)
        return found

    @staticmethod
    def _given_mode(call: ast.AST, kind: Kind, given: Given) -> Kind:
        """`model.train(mode)` where the caller's `mode` is known."""
        mode = argument(call, 0, "mode") if isinstance(call, ast.Call) else None
        if isinstance(mode, ast.Name) and mode.id in given:
            return "train" if given[mode.id] else "eval"
        return kind

    def _branches(self, node: ast.AST, until: ast.AST) -> tuple[tuple[ast.AST, bool], ...]:
        found: list[tuple[ast.AST, bool]] = []
        below = node
        for outer in self.script.above(node):
            if outer is until or isinstance(outer, FUNCTIONS):
                break
            if isinstance(outer, ast.If) and below is not outer.test:
                found.append((outer, below in outer.body))
            elif isinstance(outer, ast.IfExp) and below is not outer.test:
                found.append((outer, below is outer.body))
            below = outer
        return tuple(found)

    def _classify(self, call: ast.Call) -> Kind | None:  # noqa: PLR0911 -- one line a kind
        name = self.script.call_names[call]
        last = name.rpartition(".")[2]
        if last in _BY_NAME:
            return _BY_NAME[last]
        function = call.func
        if not isinstance(function, ast.Attribute):
            return None
        owner = function.value
        if last == "backward":  # one of the project is followed to what it calls
            return None if self.values.callees(call) else "backward"
        if last == "update" and (self.values.sites(owner, "scaler") or _SCALER.search(_last(owner))):
            return "update"
        if last == "step":
            return self._step(owner)
        if last in ("eval", "train"):
            return self._mode(call, last)
        if last in ("zero_", "fill_") and ".grad" in ast.unparse(owner):
            return "zero"
        return None

    def _step(self, owner: ast.expr) -> Kind | None:
        kinds = {self.values.kind(site) for site in self.values.sites(owner)}
        if "scaler" in kinds or _SCALER.search(_last(owner)):
            return "scaler_step"
        if "scheduler" in kinds or _SCHEDULER.search(_last(owner)):
            return "schedule"
        if "optimizer" in kinds or _OPTIMIZER.search(_last(owner)):
            return "step"
        return None

    def _mode(self, call: ast.Call, last: str) -> Kind | None:
        if last == "eval":
            return "eval" if not call.args else None
        given = argument(call, 0, "mode")
        if isinstance(given, ast.Constant):
            return "train" if given.value is True else "eval" if given.value is False else None
        return "train"

    @staticmethod
    def scaled(backward: TrainingEvent) -> bool:
        """`scaler.scale(loss).backward()`."""
        made = backward.receiver
        return isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr == "scale"

    @staticmethod
    def managed(event: TrainingEvent) -> bool:
        """Done by an object that looks after the rest itself: Accelerate, DeepSpeed, Fabric, …"""
        by = event.receiver
        return by is not None and bool(_MANAGED.search(ast.unparse(by)))


def _decided_block(asked: ast.If, given: Given) -> list[ast.stmt]:
    """The branch that these constants take; empty if that depends on more."""
    holds = decided(asked.test, given)
    return asked.body if holds else asked.orelse if holds is False else []


def _decided_against(branches: tuple[tuple[ast.AST, bool], ...], given: Given) -> bool:
    return any(decided(at.test, given) not in (None, held) for at, held in branches)  # type: ignore[attr-defined]


def carrier(call: ast.Call) -> str | None:
    """The name of what goes backward: `loss`, the `output` of `output['loss']`, what a scaler or engine is given."""
    owner: ast.expr | None = call.func.value if isinstance(call.func, ast.Attribute) else None
    if call.args and isinstance(owner, (ast.Name, ast.Attribute)) and not call.keywords:
        owner = call.args[0]  # accelerator.backward(loss)
    while isinstance(owner, (ast.Subscript, ast.Call, ast.BinOp)):
        if isinstance(owner, ast.Subscript):
            owner = owner.value
        elif isinstance(owner, ast.BinOp):
            owner = owner.left
        else:
            scale = isinstance(owner.func, ast.Attribute) and owner.func.attr == "scale" and owner.args
            owner = owner.args[0] if scale else None
    return owner.id if isinstance(owner, ast.Name) else None


def _last(owner: ast.expr) -> str:
    """The last word of `self.optimizers['g']`: what a person would call the object."""
    while isinstance(owner, (ast.Subscript, ast.Call)):
        owner = owner.value if isinstance(owner, ast.Subscript) else owner.func
    return last_word(owner)
