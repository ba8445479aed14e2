import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset


def main(model, dataset):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Subset(dataset, range(rank, len(dataset), world_size)), batch_size=8)
    with model.join():
        for x in loader:
            optimizer.zero_grad()
            model(x).backward()
            optimizer.step()
