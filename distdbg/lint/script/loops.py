"""Classify loops: over epochs, over batches, over micro-batches, and for evaluation."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cached_property
from itertools import pairwise
from typing import Literal

from distdbg.lint.script.events import STEPS, Events, TrainingEvent
from distdbg.lint.script.script import FUNCTIONS, LOOPS, Function, Loop, Script, names_in
from distdbg.lint.script.values import ValueFlow

LoopKind = Literal["epoch", "batch", "micro", "other"]
_EPOCH = re.compile(r"(?:^|_)(?:ep|epoch)s?(?:_|$|\d)|epoch", re.IGNORECASE)
_BATCHES = re.compile(
    r"(?:^|_)(?:data_?)?(?:loader|dl|iter|iterator|prefetcher|batches)s?$|loader|batches|train_data$|_dl$|data_iter",
    re.IGNORECASE,
)
#: what a loader is called where its constructor is not in sight
LOADER = re.compile(
    r"(?<!down)(?<!up)(?<!un)(?<!auto)(?<!re)loaders?(?:_|$|\d)|dataloader|^dl$|_dl$|_dl_", re.IGNORECASE
)
_MICRO = re.compile(r"micro|accum|grad_acc|virtual", re.IGNORECASE)
EVALUATION = re.compile(
    r"(?:^|_)(?:eval|evaluate|evaluation|val|valid|validate|validation|test|testing|infer|inference|predict)(?:_|$|\d)",
    re.IGNORECASE,
)
#: `train_and_evaluate`
_TRAINS_FIRST = re.compile(r"_?(?:train|fit)", re.IGNORECASE)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def for_evaluation(name: str) -> bool:
    """`val_loader`, `testData`, `evaluate`, but not `latest` or `interval`."""
    return bool(EVALUATION.search("_".join(_WORD.findall(name)).lower()))


class Loops:
    def __init__(self, script: Script, values: ValueFlow, events: Events) -> None:
        self.script = script
        self.values = values
        self.events = events
        self._inside: dict[ast.AST, list[TrainingEvent]] = {}

    def does(self, node: ast.AST) -> list[TrainingEvent]:
        if node not in self._inside:
            self._inside[node] = self.events.inside(node)
        return self._inside[node]

    @cached_property
    def kinds(self) -> dict[Loop, LoopKind]:
        return {loop: self._kind(loop) for loop in self.script.all(*LOOPS)}

    def of_kind(self, kind: LoopKind) -> list[Loop]:
        return [loop for loop, its in self.kinds.items() if its == kind]

    def _kind(self, loop: Loop) -> LoopKind:
        if isinstance(loop, ast.While):
            words = names_in(loop.test)
        else:
            if self.values.sites(loop.iter, "loader"):
                return "batch"
            words = names_in(loop.target)
            if any(_EPOCH.search(w) for w in words) and not any(_BATCHES.search(w) for w in names_in(loop.iter)):
                return "epoch"
            words = words | names_in(loop.iter)
        inside = self.script.loops_around(loop) or self.script.function_of(loop) is not None
        if inside and any(_MICRO.search(w) for w in words):
            return "micro"
        if any(_EPOCH.search(w) for w in words) and self.script.within(loop, ast.Call):
            return "epoch"
        if any(_BATCHES.search(w) for w in words):
            return "batch"
        return "batch" if self.trains(loop) else "other"

    def trains(self, loop: ast.AST) -> bool:
        """Does it go backward and step, in itself or in functions of this file?"""
        kinds = {event.kind for event in self.does(loop)}
        return "backward" in kinds and not kinds.isdisjoint(STEPS)

    @cached_property
    def training(self) -> list[Loop]:
        """The innermost loops that both go backward and step: what a person calls the training loop."""
        found = [loop for loop in self.script.all(*LOOPS) if self.trains(loop)]  # in the order of the source
        outer = {loop for loop, after in pairwise(found) if self.script.contains(loop, after)}
        trains = Counter(self.script.function_of(loop) for loop in found)
        innermost = []
        for loop in found:
            own = self.script.function_of(loop)
            if loop not in outer and not any(trains[function] > (function is own) for function in self.reached(loop)):
                innermost.append(loop)
        return innermost

    def reached(self, node: ast.AST, deepest: int = 5) -> list[Function]:
        """Functions of this file that `node` may call, directly or not."""
        seen: dict[Function, None] = {}
        todo: list[tuple[ast.AST, int]] = [(node, 0)]
        while todo:
            one, depth = todo.pop()
            for call in self.script.within(one, ast.Call):
                for function in self.values.callees(call):
                    if function not in seen and depth < deepest:
                        seen[function] = None
                        todo.append((function, depth + 1))
        return list(seen)

    def in_evaluation(self, node: ast.AST) -> bool:
        """Whether a node is in an evaluation, by the name of its function, or of what the loop iterates."""
        function = self.script.function_of(node)
        if function is not None and for_evaluation(function.name) and not _TRAINS_FIRST.match(function.name):
            return True
        return isinstance(node, LOOPS) and self.for_evaluation_by_data(node)

    @staticmethod
    def for_evaluation_by_data(loop: Loop) -> bool:
        """`for batch in tqdm(val_loader)`: by the words of what it goes over."""
        return not isinstance(loop, ast.While) and any(for_evaluation(w) for w in names_in(loop.iter))

    def without_grad(self, node: ast.AST) -> bool:
        """Under torch.no_grad, inference_mode or set_grad_enabled: here, by a decorator, or at every caller."""
        return self._without_grad(node, frozenset())

    def _without_grad(self, node: ast.AST, seen: frozenset[ast.AST]) -> bool:
        for outer in (node, *self.script.above(node)):
            if isinstance(outer, (ast.With, ast.AsyncWith)) and any(map(self._may_turn_off, outer.items)):
                return True
            if isinstance(outer, (*FUNCTIONS, ast.ClassDef)) and any(_no_grad(d) for d in outer.decorator_list):
                return True
        function = self.script.function_of(node)
        if function is None or function in seen:
            return False
        callers = self.values.callers.get(function, [])
        return bool(callers) and all(self._without_grad(c, seen | {function}) for c in callers)

    def _may_turn_off(self, item: ast.withitem) -> bool:
        """`torch.no_grad()`, a variable that holds it, `contexts[mode]()`: one of several, and who knows which."""
        by = item.context_expr
        if _no_grad(by) or (isinstance(by, ast.Call) and isinstance(by.func, ast.Subscript)):
            return True
        held = by.func if isinstance(by, ast.Call) else by
        bound = map(names_in, self.values.bound(held))  # `autocast if half else nullcontext` turns nothing off
        return any(_no_grad_by(words - {"nullcontext"}) for words in bound)


def _no_grad(node: ast.expr) -> bool:
    return _no_grad_by(names_in(node))


def _no_grad_by(words: set[str]) -> bool:
    return any(re.search(r"no_?grad|inference|set_grad_enabled|nullcontext", w) for w in words)
