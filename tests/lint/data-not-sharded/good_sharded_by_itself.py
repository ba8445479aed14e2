import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader


def main(model, files, rank, world_size):
    model = DDP(model, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    dataset = load(files, rank, world_size)
    loader = DataLoader(dataset, batch_size=8, shuffle=True)
    for x in loader:
        optimizer.zero_grad()
        model(x).backward()
        optimizer.step()
