import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(model, policy):
    model = FSDP(model, auto_wrap_policy=policy)
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), "model.pt")  # expect: rank-conditional-collective
