import torch


class Warmup(torch.optim.lr_scheduler.LRScheduler):
    def get_lr(self):
        return [base * min(1.0, self.last_epoch / 100) for base in self.base_lrs]


def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = Warmup(optimizer)
    for batch in loader:
        schedule.step()  # expect: scheduler-before-optimizer
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
