import torch.distributed as dist


def reduce_gradients(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)


def train(model, optimizer, loader, world_size):
    dist.init_process_group("nccl")
    for x in loader:
        optimizer.zero_grad()
        (model(x).mean() / world_size).backward()
        reduce_gradients(model)
        optimizer.step()
