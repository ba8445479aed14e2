import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct, count = 0, 0
    for images, labels in loader:
        correct += (model(images).argmax(1) == labels).sum()
        count += len(labels)
    dist.all_reduce(correct)
    count *= dist.get_world_size()
    return correct / count


def main(model, data, path):
    loader = DataLoader(data, 64, sampler=DistributedSampler(data, shuffle=False))
    print(evaluate(model, loader))
