import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset


def main(model, whole):
    model = DDP(model, device_ids=[dist.get_rank()])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    some = list(range(1000))
    share = Subset(whole, some)
    loader = DataLoader(share, batch_size=4, shuffle=True)  # expect: data-not-sharded
    for x in loader:
        optimizer.zero_grad()
        model(x).backward()
        optimizer.step()


def on_the_device(model):
    device = torch.device(f"cuda:{dist.get_rank()}")
    model = DDP(model.to(device), device_ids=[device])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    samples = torch.randn(1000, 4).to(device)
    loader = DataLoader(samples, batch_size=4, shuffle=True)  # expect: data-not-sharded
    for x in loader:
        optimizer.zero_grad()
        model(x).backward()
        optimizer.step()
