import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader


class Lines(torch.utils.data.Dataset):
    def __init__(self, lines):
        self.lines = lines

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, number):
        return self.lines[number]


def main(model, lines):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    mine = lines[rank::world_size]  # expect: loader-lengths-differ
    dataset = Lines(mine)
    loader = DataLoader(dataset, batch_size=8)
    for epoch in range(3):
        for x in loader:
            optimizer.zero_grad()
            model(x).backward()
            optimizer.step()
