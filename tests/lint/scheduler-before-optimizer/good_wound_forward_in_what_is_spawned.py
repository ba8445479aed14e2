import torch
import torch.multiprocessing as mp


def main(epochs):
    mp.spawn(run, nprocs=2, args=(epochs,))


def run(rank, epochs):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    for _ in range(3):
        scheduler.step()
    for _ in range(epochs):
        train(model, optimizer)
        scheduler.step()


def train(model, optimizer):
    for x in torch.ones(4, 2):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
