import torch


class Schedule:
    def __init__(self, optimizer):
        self.optimizer, self.steps = optimizer, 0

    def step(self):
        self.steps += 1
        self.optimizer.param_groups[0]["lr"] = min(0.1, self.steps / 1000)


def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = Schedule(optimizer)
    for batch in loader:
        schedule.step()
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
