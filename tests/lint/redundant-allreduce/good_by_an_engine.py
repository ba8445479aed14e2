import torch
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, net, engine):
        self.model = DDP(net)
        self.engine = engine
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(self, micro_batches, number):
        for i, batch in enumerate(micro_batches):
            self.engine.accelerator.sync_gradients = i == number - 1
            self.engine.backward(self.model(batch).mean() / number)
        self.optimizer.step()
        self.optimizer.zero_grad()
