import torch.distributed as dist
import wandb


def start_tracking(config):
    return wandb.init(project="mine", config=config)


def train(config):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    if rank == 0:
        start_tracking(config)
    wandb.init(project="mine", group="all", name=f"rank {rank}")
    wandb.init(project="mine", mode="online" if rank == 0 else "disabled")


train({"epochs": 3})
