"""Detect parameters of the model that get gradients and are in no optimizer that steps.

It asks once a window for all optimizers that stepped in a window, and between windows too where parameters are missing;
it judges once another optimizer would have stepped, or at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.models import is_fsdp1, parameters_of, weak
from distdbg.worker.user_code import Where, users_line

_MOST_NAMES = 5


class ParamsNotOptimized(Guard):
    id = "params-not-optimized"
    modes = ("off", "warn")
    most_windows = 3
    costs = (
        "a walk over all parameters at each window: about 1 ms for 1,000 of them, three times, then no more; where "
        "some are missing, a look at each step's optimizer between the windows"
    )
    blind = "models without DDP or FSDP2; optimizers that step in none of three windows, where none was missing before"

    def begin(self) -> None:
        #: id -> how many numbers
        self._held: dict[int, int] = {}
        self._own: set[int] = set()
        self._free: dict[str, tuple[int, int]] = {}
        self._known: dict[int, Callable[[], Any] | None] = {}
        self._where: Where | None = None
        self._parameters = 0

    def window(self) -> None:
        self.unsubscribe()
        self.listen_in_window(optimizer=self._steps)
        self._looked = False

    def window_ends(self) -> None:
        if self.windows == self.most_windows:
            self._judge()
        elif self._missing():
            self.listen("optimizer", self._steps_between)

    def finish(self) -> None:
        if 0 < self.windows < self.most_windows:
            self._judge()

    def _steps(self, optimizer: Any) -> None:
        self._hold(optimizer)
        model = self.context.model()
        if model is None or self._looked or is_fsdp1(model):
            return
        self._looked = True
        self._where = users_line()
        named = list(model.named_parameters())
        wanted = [(name, p) for name, p in named if p.requires_grad]
        self._parameters, self._own = len(wanted), {id(p) for _, p in named}
        self._free = {name: (id(p), _size(p)) for name, p in wanted if p.grad is not None}

    def _steps_between(self, optimizer: Any) -> None:
        known = self._known.get(id(optimizer))
        if known is None or known() is not optimizer:
            self._known[id(optimizer)] = weak(optimizer)
            self._hold(optimizer)

    def _hold(self, optimizer: Any) -> None:
        if len(self._held) < 1_000_000:
            self._held.update((id(p), _size(p)) for p in parameters_of(optimizer))

    def _missing(self) -> dict[str, int]:
        """name -> how many numbers"""
        return {name: size for name, (own, size) in self._free.items() if own not in self._held}

    def _judge(self) -> None:
        """An optimizer without any parameter of the model may have copies, as manual mixed precision does; so may one
        that has others of the same sizes. Before the end another optimizer may still be made."""
        for known in self._known.values():
            if known is not None and (optimizer := known()) is not None:
                self._hold(optimizer)  # with groups that it has got since
        missing = self._missing()
        if missing:
            others = Counter(size for own, size in self._held.items() if own not in self._own)
            self.report(self._where, names=list(missing)[:_MOST_NAMES], count=len(missing), parameters=self._parameters,
                     none_held=len(missing) == len(self._free), copied=Counter(missing.values()) <= others,
                     ended=self.context.ended)  # fmt: skip
        self._held, self._free, self._known = {}, {}, {}


def _size(parameter: Any) -> int:
    """For a DTensor, the size of this rank's part: a copy would have that size."""
    return int(getattr(parameter, "_local_tensor", parameter).numel())
