import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


def forever(batches):
    while True:
        for batch in batches:
            yield batch


def train(dataset, model, optimizer, rank):
    dist.init_process_group("nccl")
    model = DistributedDataParallel(model, device_ids=[rank])
    loader = DataLoader(dataset, batch_size=8, shuffle=True)  # expect: data-not-sharded
    for batch in forever(loader):
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
