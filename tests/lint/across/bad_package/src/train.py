import torch
from ours import loop
from ours.data import training_loader


def main(dataset, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = training_loader(dataset)
    for epoch in range(10):  # expect: missing-set-epoch
        loop.run_epoch(model, loader, optimizer)
        print(epoch)
