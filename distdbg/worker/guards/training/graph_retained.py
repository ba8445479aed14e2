"""Detect graphs of old steps that are still alive: the script keeps a loss, an output or a hidden state.

In the first window each backward's graph gets tokens, which are freed with it; weak references show when. A graph that
is alive in the next window, ninety steps later, or at the end of a shorter script, was kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.guards.shared.graphs import Token
from distdbg.worker.hook_points import roots_of
from distdbg.worker.user_code import Where, users_line

#: Younger graphs are not judged; in steps.
_OLD = 40
_FEW = 8
_MOST_GRAPHS = 32
#: Nodes of a graph that are visited, about a microsecond each.
_MOST_NODES = 2000
_KEY = "distdbg"


class GraphRetained(Guard):
    id = "graph-retained"
    modes = ("off", "warn")
    costs = "about 1 us for each node of the graphs of the first ten steps, 2 ms for each backward at most"
    blind = "graphs that are kept for the first time after the first ten steps; scripts of under 50 steps"

    def begin(self) -> None:
        self._tokens: list[tuple[list[Callable[[], Any]], Where | None]] = []
        self._planted = 0

    def window(self) -> None:
        if self.windows == 1:
            self.listen_in_window(backward=self._backward)
        elif self._tokens:
            self._judge()

    def window_ends(self) -> None:
        if self.windows == 1:
            self._planted = self.context.steps

    def finish(self) -> None:
        if self._tokens and self._planted and self.context.steps - self._planted >= _OLD:
            self._judge()

    def _backward(self, frame: FrameType) -> None:
        if len(self._tokens) >= _MOST_GRAPHS:
            return
        from _weakref import ref

        roots = roots_of(frame)
        node = getattr(roots[0] if roots else None, "grad_fn", None)
        tokens: list[Callable[[], Any]] = []
        for one in _some_of(node) if node is not None else ():
            if _KEY not in one.metadata:  # else it is an older graph's: a hidden state's, or what all steps share
                one.metadata[_KEY] = token = Token()
                tokens.append(ref(token))
        if tokens:
            self._tokens.append((tokens, users_line()))

    def _judge(self) -> None:
        kept: dict[tuple[object, ...], int] = {}
        for tokens, where in self._tokens:
            if any(token() is not None for token in tokens):
                key = tuple(where or ())
                kept[key] = kept.get(key, 0) + 1
        planted, self._tokens = len(self._tokens), []
        for place, count in kept.items():
            if count >= _FEW:
                self.report(list(place) or None, kept=count, of=planted, after=self.context.steps - self._planted)


def _some_of(node: Any) -> Iterator[Any]:
    """Nodes of a graph ever further from the loss, and one of the furthest: a tensor keeps all nodes that made it,
    and none that used it. Nodes of parameters always live, and are left out."""
    seen, level, depth = {node}, [node], 0
    while True:
        deeper = []
        for one in level:
            for function, _ in one.next_functions:
                if function is not None and function not in seen and type(function).__name__ != "AccumulateGrad":
                    seen.add(function)
                    deeper.append(function)
        if depth & (depth - 1) == 0 or not deeper or len(seen) > _MOST_NODES:
            yield level[0]
        if not deeper or len(seen) > _MOST_NODES:
            return
        level, depth = deeper, depth + 1
