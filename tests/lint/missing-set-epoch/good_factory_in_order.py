from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def make_sampler(dataset, split, shuffle):
    if not shuffle:
        return None
    return DistributedSampler(dataset, shuffle=split == "train")


def make_loader(dataset, split, shuffle=True):
    return DataLoader(dataset, batch_size=4, sampler=make_sampler(dataset, split, shuffle))


def neighbours(models, dataset, loader):
    labels = make_loader(dataset, "test")
    texts = make_loader(dataset, "train", shuffle=False)
    for model in models:
        for x in labels:
            print(model(x))
        for x in texts:
            print(model(x))
        for x in loader:
            print(model(x))


def compare(models, dataset):
    neighbours(models, dataset, make_loader(dataset, "test"))
