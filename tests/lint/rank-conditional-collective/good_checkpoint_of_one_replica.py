"""In hybrid sharding the first replica alone saves, with its own group; a whole model gives its state alone."""

import torch.distributed as dist
import torch.distributed.checkpoint as dist_cp
from torch.distributed.checkpoint.state_dict import get_model_state_dict


def save(state, folder, mesh):
    rank = mesh.get_local_rank(mesh_dim=0)
    if rank == 0:
        dist_cp.save(state, checkpoint_id=folder, process_group=mesh.get_group(1))


def shard(model, config):
    dist.init_process_group()
    state = {}
    if dist.get_rank() == 0:
        state = get_model_state_dict(model)
    return spread(config.shard(model), state)
