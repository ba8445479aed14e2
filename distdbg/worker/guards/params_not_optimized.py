"""Parameters of the model get gradients, and no optimizer that steps holds them.

Asked once a window, of all optimizers that stepped in any window; judged once enough steps have gone by that another
optimizer would have had its turn, or at the end.
"""

from __future__ import annotations

from distdbg.worker.guards._base import Guard, users_line
from distdbg.worker.guards._gradients import parameters_of
from distdbg.worker.wrapping import is_fsdp1

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from distdbg.worker.guards._base import Where

_MOST_NAMES = 5


class ParamsNotOptimized(Guard):
    id = "params-not-optimized"
    modes = ("off", "warn")
    costs = "a walk over all parameters at each window: about 1 ms for 1,000 of them, three times, then no more"
    blind = "models without DDP or FSDP2; optimizers that step in none of three windows"

    def begin(self) -> None:
        self._held: set[int] = set()
        self._free: dict[str, int] = {}
        self._where: Where | None = None
        self._parameters = self._windows = 0

    def window(self) -> None:
        self._windows += 1
        if self._windows <= 3:
            self.listen("optimizer", self._steps)
            self._looked = False

    def window_ends(self) -> None:
        self.deaf()
        if self._windows == 3:
            self._judge()

    def finish(self) -> None:
        if 0 < self._windows < 3:
            self._judge()

    def _steps(self, optimizer: Any) -> None:  # noqa: ANN401
        if len(self._held) < 1_000_000:
            self._held.update(map(id, parameters_of(optimizer)))
        model = self.desk.model()
        if model is None or self._looked or is_fsdp1(model):
            return
        self._looked = True
        self._where = users_line()
        wanted = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self._parameters = len(wanted)
        self._free = {name: id(p) for name, p in wanted if p.grad is not None}

    def _judge(self) -> None:
        """Where no parameter of the model is held, the optimizer may hold copies, as mixed precision by hand does."""
        names = [name for name, own in self._free.items() if own not in self._held]
        if names:
            self.say(self._where, names=names[:_MOST_NAMES], count=len(names), parameters=self._parameters,
                     none_held=len(names) == len(self._free))  # fmt: skip
        self._held, self._free = set(), {}
