import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct, count = 0, 0
    for images, labels in loader:
        correct += (model(images).argmax(1) == labels).sum()
        count += len(labels)
    return correct / count


def main(model, data, other):
    train_sampler = DistributedSampler(other)
    train(model, DataLoader(other, 64, sampler=train_sampler))
    loader = DataLoader(data, 64, shuffle=False)
    print(evaluate(model, loader))
