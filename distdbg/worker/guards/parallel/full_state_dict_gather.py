"""Detect that each rank gathers the whole state of a sharded model on its own device."""

from __future__ import annotations

from types import FrameType
from typing import Any

from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.guards.shared.units import LARGE, units_of
from distdbg.worker.models import is_fsdp1, is_fsdp2
from distdbg.worker.user_code import users_line


class FullStateDictGather(Guard):
    id = "full-state-dict-gather"
    modes = ("off", "warn")
    costs = "about 1 ms for each state_dict of a sharded model with 1,000 parameters"
    blind = (
        "models of under 10 million parameters; parameters that a script gathers one by one (full_tensor, "
        "summon_full_params)"
    )

    def begin(self) -> None:
        self.listen("state-dict", self._asked)

    def _asked(self, frame: FrameType) -> None:
        variables = frame.f_locals
        model, options, state = (variables.get(name) for name in ("model", "options", "fsdp_state"))
        if state is not None:
            model = variables.get("module")
            whole = frame.f_code.co_name == "_full_pre_state_dict_hook" and state._is_root is not False
            offloads = getattr(state._state_dict_config, "offload_to_cpu", False)
        else:
            whole = getattr(options, "full_state_dict", False) and frame.f_code.co_name.startswith("get_")
            offloads = getattr(options, "cpu_offload", False)
        if model is None or not whole or offloads:
            return
        parameters, size, device = _whole_size(model)
        optimizers = variables.get("optimizers") or ()
        if parameters >= LARGE:
            self.report(users_line(), bytes=size, parameters=parameters, device=device, with_optimizer=bool(optimizers))


def _whole_size(model: Any) -> tuple[int, int, str]:
    """Elements, bytes and device of the gathered parameters; 0 for a model that is not sharded."""
    numbers = size = 0
    # after an evaluation the outermost unit of FSDP2 is still gathered, and shows no shards
    device, sharded = "", is_fsdp1(model) or any(map(is_fsdp2, model.modules()))
    for parameter in model.parameters():
        sharded = sharded or any(p.is_shard() for p in getattr(parameter, "placements", ()))
        numbers += parameter.numel()  # of FSDP2's, that of the whole
        size += parameter.numel() * parameter.element_size()
        device = parameter.device.type
    if is_fsdp1(model) and numbers:
        whole = sum(unit.size for unit in units_of(model))
        size, numbers = whole * size // numbers, whole
    return (numbers, size, device) if sharded else (0, 0, device)
