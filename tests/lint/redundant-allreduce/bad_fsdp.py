import torch
from torch.distributed.fsdp import fully_shard


def main(model, loader, accum_steps):
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, x in enumerate(loader):
        loss = model(x) / accum_steps
        loss.backward()  # expect: redundant-allreduce
        if (i + 1) % accum_steps == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()
