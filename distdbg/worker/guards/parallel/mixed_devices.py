"""Detect that a forward of a DDP model got tensors on another device and failed because of it.

The inputs are noted before the forward, and reported only where the script ends with an error about devices that this
forward raised: a model that moves its inputs itself is right, and after one forward that succeeded with such inputs the
guard stops.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

from distdbg.evidence.frames import module_path
from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.models import is_ddp
from distdbg.worker.user_code import Where, frames_above, users_line

#: The first forwards of the script are looked at, then the first of each pass over a loader.
_FORWARDS = 3
_PASSES = 500
_MOST = 16
_LEVELS = 2
_FRAMES = 8
#: "Input type (torch.FloatTensor) …" is said of dtypes, too: one of the two must be the CPU's.
_ABOUT_DEVICES = re.compile(
    r"on the same device|at the same device|is not on the expected device|"
    r"Input type \(torch\.\w+\) and weight type \(torch\.\w+\.|"
    r"Input type \(torch\.\w+\.\w+\) and weight type \(torch\.\w+\)"
)


class MixedDevices(Guard):
    id = "mixed-devices"
    modes = ("off", "warn")
    costs = "about 5 us for the first three steps and the first of each pass over a loader, where DDP has no device_ids"
    blind = (
        "models called without DDP, or with device_ids, which moves inputs by itself, as FSDP does; what a forward "
        "makes on another device; losses"
    )

    def begin(self) -> None:
        self._left, self._passes = _FORWARDS, _PASSES
        #: the forward that has begun: its model's id, its line, the inputs elsewhere, the parameters' device
        self._open: tuple[int, Where | None, list[str], str] | None = None
        self.listen("forward", self._forward)
        self.listen("pass", self._begins)

    def _begins(self, _iterator: object) -> None:
        self._passes -= 1
        if self._left > 0 or self._passes < 0:
            return
        self._left = 1
        self.listen("forward", self._forward)

    def _forward(self, module: Any) -> None:
        self._left -= 1
        if self._left <= 0:
            self.unsubscribe("forward")
        self._open = None
        if not is_ddp(module) or module.device_ids or module.is_multi_device_module:
            return
        own = next(module.parameters()).device
        elsewhere = [f"{name} on {device}" for name, device in _inputs() if device != own]
        if elsewhere:
            self._open = id(module), users_line(), elsewhere, str(own)
            self.listen("forward-end", self._ends)

    def _ends(self, module: Any) -> None:
        """The forward can use them."""
        if self._open is not None and self._open[0] == id(module):
            self._open = None
            self.unsubscribe()

    def finish(self) -> None:
        if self._open is not None and _raised_at(self._open[1], sys.exc_info()[1]):
            _, where, inputs, own = self._open
            self.report(where, inputs=inputs, parameters=own)


def _inputs() -> Iterator[tuple[str, Any]]:
    """Tensor arguments of DDP's forward, with their devices; a single number on the CPU fits all devices."""
    for frame in frames_above(_FRAMES):
        code = frame.f_code
        if code.co_name == "forward" and module_path(code.co_filename) == "torch/nn/parallel/distributed.py":
            given = frame.f_locals
            named = [(f"input {n}", one) for n, one in enumerate(given.get("inputs", ()), 1)]
            named += [(f"`{name}`", one) for name, one in given.get("kwargs", {}).items()]
            for name, tensor in _tensors(named, _LEVELS):
                if tensor.dim() or tensor.device.type != "cpu":
                    yield name, tensor.device
            return


def _tensors(named: list[tuple[str, Any]], levels: int) -> Iterator[tuple[str, Any]]:
    for name, one in named[:_MOST]:
        if isinstance(one, sys.modules["torch"].Tensor):
            yield name, one
        elif levels and isinstance(one, dict):
            yield from _tensors([(f"{name}[{key!r}]", value) for key, value in one.items()], levels - 1)
        elif levels and isinstance(one, (list, tuple)):
            yield from _tensors([(f"{name}[{n}]", value) for n, value in enumerate(one)], levels - 1)


def _raised_at(where: Where | None, error: BaseException | None) -> bool:
    """Whether the script ends with an error about devices that passed through that line."""
    for _ in range(_FRAMES):
        if error is None or where is None:
            return False
        said = error.args[0] if isinstance(error, RuntimeError) and error.args else None
        if isinstance(said, str) and _ABOUT_DEVICES.search(said) and _passed(where, error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _passed(where: Where, error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None:
        if [trace.tb_frame.f_code.co_filename, trace.tb_lineno] == where[:2]:
            return True
        trace = trace.tb_next
    return False
