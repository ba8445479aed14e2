"""A loop over micro-batches goes backward, and a method of a base class steps behind it."""

from base import Worker
from torch.nn.parallel import DistributedDataParallel


class Actor(Worker):
    def build(self, net):
        self.model = DistributedDataParallel(net, device_ids=[self.gpu])

    def update(self, batch):
        for part in batch.split(self.micro_batch_size):
            loss = self.model(part) / self.parts
            loss.backward()  # expect: redundant-allreduce
        self._optimizer_step()
