import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader


def main(model, samples):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    even = len(samples) // world_size * world_size
    loader = DataLoader(samples[:even][rank::world_size], batch_size=8)
    for x in loader:
        optimizer.zero_grad()
        model(x).backward()
        optimizer.step()
