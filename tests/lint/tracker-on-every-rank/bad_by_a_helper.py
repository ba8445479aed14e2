import torch.distributed as dist
import wandb


def start_tracking(config):
    return wandb.init(project="mine", config=config)  # expect: tracker-on-every-rank


def train(config):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    run = start_tracking(config)
    if rank == 0:
        run.log({"epochs": config["epochs"]})


train({"epochs": 3})
