import torch.distributed as dist


class Runner:
    def train(self, total, optimizer):
        print(dist.get_rank())
        train_loader = self.task.get_loader("train")
        step = 0
        while step < total:
            for x in train_loader:  # expect: missing-set-epoch
                self.model(x).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                step += 1


class Pipeline:
    def __init__(self, train_loader, task):
        self.train_loader = train_loader
        self.task = task

    def train(self, epochs):
        for epoch in range(epochs):
            self.run_epoch(epoch)

    def run_epoch(self, epoch):
        for x in self.train_loader:
            self.task.train_step(x)
