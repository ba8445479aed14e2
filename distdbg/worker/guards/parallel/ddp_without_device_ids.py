"""Detect DDP without device_ids over a module that is not on the rank's current GPU.

Where the current GPU is the module's, leaving device_ids out costs nothing. Else inputs stay where they are, `cuda`
means the other GPU (mostly the first: that of rank 0), and memory is taken there.
"""

from __future__ import annotations

import sys
from typing import Any

from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.models import is_ddp
from distdbg.worker.user_code import users_line

_TIMES = 3


class DdpWithoutDeviceIds(Guard):
    id = "ddp-without-device-ids"
    modes = ("off", "warn", "error")
    most_windows = 3
    costs = "about 2 us for each of ten steps, three times, where DDP has no device_ids"
    blind = "FSDP; the CPU; modules on several GPUs; scripts that choose the GPU for the forward alone"

    def window(self) -> None:
        self._times: dict[int, int] = {}
        self.listen_in_window(forward=self._forward)

    def _forward(self, module: Any) -> None:
        if not is_ddp(module) or module.device_ids or module.device_type != "cuda" or module.is_multi_device_module:
            return
        cuda = sys.modules["torch"].cuda
        if not cuda.is_initialized():  # else to ask would make it so
            return
        own, current = module.device.index, cuda.current_device()
        times = self._times[id(module)] = self._times.get(id(module), 0) + 1 if own not in (None, current) else 0
        if times == _TIMES:
            self.report(users_line(), f"the model is on cuda:{own}, the current device is cuda:{current}",
                     own=own, current=current)  # fmt: skip
