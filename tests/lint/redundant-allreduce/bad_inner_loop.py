import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def main(model, loader, micro):
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in loader:
        optimizer.zero_grad()
        for part in batch.chunk(micro):
            loss = model(part) / micro
            loss.backward()  # expect: redundant-allreduce
        optimizer.step()
