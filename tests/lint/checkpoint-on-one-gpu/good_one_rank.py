import torch
import torch.distributed as dist


def main(model, path):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    if rank == 0:
        model.load_state_dict(torch.load(path))
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)
    shard_state = torch.load(f"{path}/shard{rank}.pt")
    return shard_state
