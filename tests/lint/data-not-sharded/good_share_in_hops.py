import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset


def main(model, whole):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = DDP(model, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    even = len(whole) // ranks * ranks
    mine = list(range(rank, even, ranks))
    share = Subset(whole, mine)
    loader = DataLoader(share, batch_size=4, shuffle=True)
    for x in loader:
        optimizer.zero_grad()
        model(x).backward()
        optimizer.step()
