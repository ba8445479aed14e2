"""Detect DDP with the wrong device, or with more communication than needed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from distdbg.evidence.frames import module_path
from distdbg.worker.guards.shared.backward import dense_one, is_filled
from distdbg.worker.guards.shared.base import IN_A_ROW, Guard
from distdbg.worker.models import is_ddp, parameters_of, weak_or_gone
from distdbg.worker.user_code import Where, frames_above, users_line


class DdpWithoutDeviceIds(Guard):
    """Detect DDP without device_ids over a module that is not on the rank's current GPU.

    Where the current GPU is the module's, leaving device_ids out costs nothing. Else inputs stay where they are, `cuda`
    means the other GPU (mostly the first: that of rank 0), and memory is taken there."""

    id = "ddp-without-device-ids"
    modes = ("off", "warn", "error")
    most_windows = 3
    costs = "about 2 us for each of ten steps, three times, where DDP has no device_ids"
    blind = "FSDP; the CPU; modules on several GPUs; scripts that choose the GPU for the forward alone"

    def window(self) -> None:
        self.listen_in_window(forward=self._forward)

    def _forward(self, module: Any) -> None:
        if not is_ddp(module) or module.device_ids or module.device_type != "cuda" or module.is_multi_device_module:
            return
        cuda = sys.modules["torch"].cuda
        if not cuda.is_initialized():  # else to ask would make it so
            return
        own, current = module.device.index, cuda.current_device()
        if self.in_a_row(own not in (None, current), id(module)) == IN_A_ROW:
            message = f"the model is on cuda:{own}, the current device is cuda:{current}"
            self.report(users_line(), message, own=own, current=current)


#: The first forwards of the script are looked at, then the first of each pass over a loader.
_FORWARDS = 3
_PASSES = 500
_MOST_INPUTS = 16
_LEVELS = 2
_FRAMES = 8
#: "Input type (torch.FloatTensor) …" is said of dtypes, too: one of the two must be the CPU's.
_ABOUT_DEVICES = re.compile(
    r"on the same device|at the same device|is not on the expected device|"
    r"Input type \(torch\.\w+\) and weight type \(torch\.\w+\.|"
    r"Input type \(torch\.\w+\.\w+\) and weight type \(torch\.\w+\)"
)


class MixedDevices(Guard):
    """Detect that a forward of a DDP model got tensors on another device and failed because of it.

    The inputs are noted before the forward, and reported only where the script ends with an error about devices that
    this forward raised: a model that moves its inputs itself is right, and after one forward that succeeded with such
    inputs the guard stops."""

    id = "mixed-devices"
    costs = "about 5 us for the first three steps and the first of each pass over a loader, where DDP has no device_ids"
    blind = (
        "models called without DDP, or with device_ids, which moves inputs by itself, as FSDP does; what a forward "
        "makes on another device; losses"
    )

    def begin(self) -> None:
        self._left = _FORWARDS
        #: the forward that has begun: its model's id, its line, the inputs elsewhere, the parameters' device
        self._open: tuple[int, Where | None, list[str], str] | None = None
        self.listen("forward", self._forward)
        self.listen("pass", self._begins)

    def _begins(self, _iterator: object) -> None:
        if self.passes_end(_PASSES, "pass") or self._left > 0:
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
    for name, one in named[:_MOST_INPUTS]:
        if isinstance(one, sys.modules["torch"].Tensor):
            yield name, one
        elif levels and isinstance(one, dict):
            yield from _tensors([(f"{name}[{key!r}]", value) for key, value in one.items()], levels - 1)
        elif levels and isinstance(one, (list, tuple)):
            yield from _tensors([(f"{name}[{n}]", value) for n, value in enumerate(one)], levels - 1)


def _raised_at(where: Where | None, error: BaseException | None) -> bool:
    """Whether the script ends with an error about devices that passed through that line."""
    from traceback import walk_tb

    for _ in range(_FRAMES):
        if error is None or where is None:
            return False
        said = error.args[0] if isinstance(error, RuntimeError) and error.args else None
        passed = ([frame.f_code.co_filename, line] == where[:2] for frame, line in walk_tb(error.__traceback__))
        if isinstance(said, str) and _ABOUT_DEVICES.search(said) and any(passed):
            return True
        error = error.__cause__ or error.__context__
    return False


class RedundantAllreduce(Guard):
    """Detect that DDP reduces the gradients of each micro-batch, though only the last one before the step needs it.

    That is: several backwards from the same line, each after a forward from the same line, no gradient cleared between
    them, before one step of the optimizer that has the model; three times in one window. Two losses at two lines, SAM
    and closures do not match."""

    id = "redundant-allreduce"
    modes = ("off", "warn", "error")
    costs = "about 15 us for each of ten steps in a thousand"
    blind = "FSDP, where gradients that are not reduced cost memory: a script may reduce each micro-batch on purpose"

    def window(self) -> None:
        self._of: dict[int, _ReducedModel] = {}
        #: id of an optimizer and of a model -> whether it has a parameter of that
        self._owned: dict[tuple[int, int], bool] = {}
        self._forward: tuple[_ReducedModel, Where | None] | None = None
        self.listen_in_window(forward=self._begins, backward=self._backward, optimizer=self._steps)

    def _begins(self, module: Any) -> None:
        self._forward = None
        if not module.training or getattr(module, "require_backward_grad_sync", None) is not True:
            return
        if module.process_group.size() < 2:
            return
        model = self._of.setdefault(id(module), _ReducedModel(module))
        self._forward = model, users_line()

    def _backward(self, _frame: object) -> None:
        if self._forward is None:
            return  # another kind of autograd, or one within another
        (model, line), self._forward = self._forward, None
        if model.places:
            gradient = getattr(model.parameter(), "grad", None)
            if gradient is None or is_filled(gradient) is False:  # it was cleared
                model.places.clear()
        model.places.append((line, users_line()))

    def _steps(self, optimizer: Any) -> None:
        for key, model in self._of.items():
            pair = id(optimizer), key
            if model.places and pair not in self._owned:
                parameter = model.parameter()
                self._owned[pair] = any(one is parameter for one in parameters_of(optimizer))
            if not model.places or not self._owned[pair]:
                continue
            places, model.places = model.places, []
            same = len(places) > 1 and all(place == places[0] for place in places)
            if self.in_a_row(same, key) >= IN_A_ROW:
                self.report(places[0][1], "each micro-batch is reduced", reduced=len(places))


class _ReducedModel:
    def __init__(self, module: Any) -> None:
        self.parameter: Callable[[], Any] = weak_or_gone(dense_one(module.parameters()))
        self.places: list[tuple[Where | None, Where | None]] = []
