"""Every output is kept "for later", on the list of a trainer: 256 KiB a step, and no graph.

Verdict: memory-leak; says: `self.outputs` (outputs_kept.py:29)
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self):
        self.model = DistributedDataParallel(torch.nn.Linear(16, 1024))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.loader = DataLoader(TensorDataset(torch.randn(64 * 40, 16)), batch_size=64)
        self.outputs = []

    def run(self, epochs):
        for _ in range(epochs):
            for (batch,) in self.loader:
                self.step(batch)

    def step(self, batch):
        self.optimizer.zero_grad()
        output = self.model(batch)
        output.square().mean().backward()
        self.optimizer.step()
        self.outputs.append(output.detach())


dist.init_process_group("gloo")
Trainer().run(epochs=10)
dist.destroy_process_group()
