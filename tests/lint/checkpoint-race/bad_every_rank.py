import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    model = DDP(torch.nn.Linear(4, 4), device_ids=[rank])
    for epoch in range(3):
        print(rank, epoch)
        if epoch % 2 == 0:
            torch.save(model.module.state_dict(), f"model_{epoch}.pt")  # expect: checkpoint-race


main()
