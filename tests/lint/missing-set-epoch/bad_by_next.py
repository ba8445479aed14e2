from torch.utils.data import DataLoader, DistributedSampler


class Recipe:
    def __init__(self, data, model, optimizer):
        sampler = DistributedSampler(data, num_replicas=2, rank=0, shuffle=True)
        self.loader = DataLoader(data, sampler=sampler)
        self.model, self.optimizer = model, optimizer

    def train(self, epochs, steps):
        for epoch in range(epochs):
            batches = iter(self.loader)
            for _ in range(steps):  # expect: missing-set-epoch
                self.optimizer.zero_grad()
                self.model(next(batches)).mean().backward()
                self.optimizer.step()
            print(epoch)
