"""Graphs of old steps are still alive: somebody keeps a loss, or what it was made of, and with it the whole graph.

A token hangs on the graph of each backward in the first window, and a weak reference here. It goes with the graph. What
is alive at the next window, ninety steps later, or at the end of a shorter script, was kept.
"""

from __future__ import annotations

from distdbg.worker.guards._base import Guard, users_line
from distdbg.worker.places import roots_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from distdbg.worker.guards._base import Where

#: Nobody judges graphs that are younger, in steps.
_OLD = 40
_FEW = 8
_MOST_TOKENS = 32


class _Token:
    __slots__ = ("__weakref__",)


class GraphRetained(Guard):
    id = "graph-retained"
    modes = ("off", "warn")
    costs = "about 5 us for each of the first ten steps"
    blind = "graphs that are kept for the first time after the first ten steps; scripts of under 50 steps"

    def begin(self) -> None:
        self._tokens: list[tuple[Callable[[], Any], Where | None]] = []
        self._windows = 0
        self._planted = 0

    def window(self) -> None:
        self._windows += 1
        if self._windows == 1:
            self.listen("backward", self._backward)
        elif self._tokens:
            self._judge()

    def window_ends(self) -> None:
        if self._windows == 1:
            self.deaf()
            self._planted = self.desk.steps

    def finish(self) -> None:
        if self._tokens and self._planted and self.desk.steps - self._planted >= _OLD:
            self._judge()

    def _backward(self, frame: FrameType) -> None:
        if len(self._tokens) >= _MOST_TOKENS:
            return
        from _weakref import ref

        roots = roots_of(frame)
        node = getattr(roots[0] if roots else None, "grad_fn", None)
        if node is not None:
            token = _Token()
            node.metadata["distdbg"] = token
            self._tokens.append((ref(token), users_line()))

    def _judge(self) -> None:
        kept: dict[tuple[object, ...], int] = {}
        for token, where in self._tokens:
            if token() is not None:
                key = tuple(where or ())
                kept[key] = kept.get(key, 0) + 1
        planted, self._tokens = len(self._tokens), []
        for place, count in kept.items():
            if count >= _FEW:
                self.say(list(place) or None, kept=count, of=planted, after=self.desk.steps - self._planted)
