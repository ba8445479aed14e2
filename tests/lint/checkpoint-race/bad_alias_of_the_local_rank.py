import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, opt):
    dist.init_process_group("nccl")
    epochs, rank = opt.epochs, opt.local_rank  # expect: checkpoint-race
    model = DDP(net, device_ids=[rank])
    for epoch in range(epochs):
        if rank in [-1, 0]:
            torch.save({"model": model.module.state_dict(), "epoch": epoch}, f"{opt.folder}/last.pt")
