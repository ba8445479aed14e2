"""A wrapped model and its ranks: who averages its gradients, what its parameters are called, what is gathered."""

from __future__ import annotations

import sys

from distdbg.worker.wrapping import inner_of, is_fsdp2

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def data_parallel_ranks(model: Any) -> list[int] | None:  # noqa: ANN401
    """The global ranks that share a DDP or FSDP module's gradients; None where that cannot be known."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or model is None or not dist.is_initialized():
        return None
    group = getattr(model, "process_group", None)
    if group is not None:
        return [int(rank) for rank in dist.get_process_group_ranks(group)]
    own = getattr(model._get_fsdp_state(), "_fsdp_param_group", None) if is_fsdp2(model) else None
    mesh = getattr(getattr(own, "mesh_info", None), "mesh", None)
    return None if mesh is None else [int(rank) for rank in mesh.mesh.flatten().tolist()]


def names_of(model: Any) -> dict[int, str]:  # noqa: ANN401
    """id of a parameter -> its name within what DDP and torch.compile have wrapped."""
    return {id(p): name.replace("_orig_mod.", "") for name, p in inner_of(model).named_parameters()}


def units_of(module: Any) -> list[int]:  # noqa: ANN401
    """How many numbers each unit gathers; empty for what is no FSDP module. The states of FSDP2 know one another."""
    if is_fsdp2(module):
        states = module._get_fsdp_state()._state_ctx.all_states
        groups = [getattr(state, "_fsdp_param_group", None) for state in states]
        return [sum(p._orig_size.numel() for p in group.fsdp_params) for group in groups if group is not None]
    fsdp_modules = getattr(type(module), "fsdp_modules", None)
    if not callable(fsdp_modules):
        return []
    handles = (getattr(unit, "_handle", None) for unit in fsdp_modules(module))
    return [h.flat_param._unpadded_unsharded_size.numel() for h in handles if h is not None]
