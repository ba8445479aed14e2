"""A wrapped model and its ranks: who averages its gradients, what its parameters are called."""

from __future__ import annotations

import sys

from distdbg.worker.guards.shared.units import groups_of
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
    meshes = [own.mesh_info.mesh for own in groups_of(model._get_fsdp_state())] if is_fsdp2(model) else []
    ranks = [[int(rank) for rank in mesh.mesh.flatten().tolist()] for mesh in meshes]
    return ranks[0] if ranks and ranks.count(ranks[0]) == len(ranks) else None


def names_of(model: Any) -> dict[int, str]:  # noqa: ANN401
    """id of a parameter -> its name within what DDP and torch.compile have wrapped."""
    return {id(p): name.replace("_orig_mod.", "") for name, p in inner_of(model).named_parameters()}
