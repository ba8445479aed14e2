"""Report the state of the random numbers that dropout uses, before and after ten steps; the rule compares the ranks.

A seed alone proves nothing: to seed all ranks alike for the initial weights, and to draw nothing later, is right. It
reads the generator of the model's device; no number is drawn, and no device is read.
"""

from __future__ import annotations

import sys
from typing import Any

from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.user_code import users_line


class SeedsIdentical(Guard):
    id = "seeds-identical"
    default = "off"  # Trainer and many others seed all ranks alike, and it costs them little
    modes = ("off", "warn")
    most_windows = 2
    costs = "about 50 us at each of the steps 1, 11, 100 and 110, and a walk over the modules"
    blind = (
        "models without DDP or FSDP2, or without dropout; random numbers of NumPy, of Python and of the loader's "
        "workers; other devices than CPU and CUDA"
    )

    def begin(self) -> None:
        self._before: tuple[str, int, int] | None = None

    def window(self) -> None:
        model = self.context.model()
        if model is not None and self.context.distributed():
            self._before = _generator_state(model)

    def window_ends(self) -> None:
        before, self._before = self._before, None
        model, ranks = self.context.model(), self.context.replicas()
        if before is None or not ranks:
            return
        after, drops = _generator_state(model), _dropouts(model)
        if after is not None and after != before and drops:
            self.report(users_line(), "", self.windows, before=before, after=after, dropouts=drops, among=ranks)


def _generator_state(model: Any) -> tuple[str, int, int] | None:
    """The device's kind, the seed, and the state of its numbers; None where it is not available."""
    parameter = next(model.parameters(), None)
    device, torch = getattr(parameter, "device", None), sys.modules["torch"]
    if device is None or device.type not in ("cpu", "cuda"):
        return None
    if device.type == "cpu":
        from zlib import crc32

        generator = torch.default_generator
        return "cpu", generator.initial_seed(), crc32(bytes(generator.get_state().tolist()))
    generator = torch.cuda.default_generators[device.index or 0]
    return "cuda", generator.initial_seed(), generator.get_offset()


def _dropouts(model: Any) -> int:
    """The number of its modules with active dropout."""
    return sum(
        1 for m in model.modules() if m.training and "Dropout" in type(m).__name__ and 0 < getattr(m, "p", 0) < 1
    )
