import torch.distributed as dist
from engine import evaluate


def main(model, val_loader):
    dist.init_process_group("nccl")
    if dist.get_rank() == 0:
        print(evaluate(model, val_loader))
