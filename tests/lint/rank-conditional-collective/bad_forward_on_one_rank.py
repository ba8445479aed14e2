import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def evaluate(model, loader):
    with torch.no_grad():
        return sum(model(x).mean() for x in loader)  # expect: rank-conditional-collective


def main(net, loader, rank):
    model = DDP(net, device_ids=[rank])
    for x in loader:
        model(x).sum().backward()
    if rank == 0:
        print(evaluate(model, loader))


def of_a_sharded_model(net, x):
    sharded = FSDP(net)
    if dist.get_rank() == 0:
        print(sharded(x))  # expect: rank-conditional-collective


class Trainer:
    def __init__(self, net, rank):
        self.rank = rank
        self.model = DDP(net)

    def fit(self, x):
        if self.rank == 0:
            self.sample(x)

    def sample(self, x):
        return self.model(x)  # expect: rank-conditional-collective
