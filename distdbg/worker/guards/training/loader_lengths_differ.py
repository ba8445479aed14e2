"""Report the batches of this rank's loader and the steps made with them; the rule compares the ranks.

A fact is sent early in a pass, before a rank could hang because others have finished, and at its end; the number of
backwards follows at the end of the script. Under `join()` lengths may differ; a loop that a script leaves early has no
end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distdbg.worker.guards.shared.base import Guard, script_failed
from distdbg.worker.models import weak
from distdbg.worker.user_code import Where, users_line

#: The first passes of a loop are reported, and later ones with another length.
_PASSES = 3
_MOST_PASSES = 1000


class LoaderLengthsDiffer(Guard):
    id = "loader-lengths-differ"
    most = 32
    costs = "about 20 us for each pass over a loader"
    blind = "models without DDP or FSDP; IterableDataset, whose length is unknown; loaders that are no torch DataLoader"

    def begin(self) -> None:
        self._begun: _Begun | None = None
        self._numbers: dict[tuple[object, ...], tuple[int, int]] = {}
        self._left, self._backwards = _MOST_PASSES, self.context.backwards
        self.listen("pass", self._begins)
        self.listen("data-end", self._ends)

    def _begins(self, iterator: Any) -> None:
        self._left -= 1
        if self._left < 0:
            self.unsubscribe()
            return
        total, reference = iterator.__dict__.get("_distdbg_batches", -1), weak(iterator)
        if total > 0 and reference is not None and self.context.distributed():
            self._begun = _Begun(reference, users_line(), total, self.context.steps)
            self.unsubscribe("optimizer")
            self.listen("optimizer", self._steps)

    def _steps(self, _optimizer: object) -> None:
        """The first step of the pass: it trains, with the loader that was begun last."""
        self.unsubscribe("optimizer")
        begun, model = self._begun, self.context.model()
        ranks = self.context.replicas()
        if begun is None or not ranks:
            return
        line = tuple((begun.where or [])[:2])
        if getattr(getattr(model, "_join_config", None), "enable", False) or len(self._numbers) >= 64:
            self._begun = None
            return
        number, length = self._numbers.get(line, (0, -1))
        self._numbers[line] = number + 1, begun.total
        if number < _PASSES or length != begun.total:
            begun.number = number
            self.report(begun.where, "", (number, "begins"), number=number, batches=begun.total, among=ranks)

    def _ends(self, iterator: Any) -> None:
        begun = self._begun
        if begun is not None and begun.of() is iterator:
            self._begun = None
            if begun.number is not None:
                steps = self.context.steps - begun.steps
                self.report(begun.where, "", (begun.number, "ends"), number=begun.number, steps=steps)

    def finish(self) -> None:
        """Ranks with endless loaders have equal numbers; a rank that failed in a backward has counted it."""
        if self._reported:
            self.report(None, backwards=self.context.backwards - self._backwards, by_itself=not script_failed())


class _Begun:
    """A pass; `number` counts those of one line that trained, once it is reported."""

    def __init__(self, of: Callable[[], Any], where: Where | None, total: int, steps: int) -> None:
        self.of, self.where, self.total, self.steps = of, where, total, steps
        self.number: int | None = None
