import torch
from torch.nn.parallel import DistributedDataParallel as DDP


class Learner:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def state_dict(self):
        model = self.model.module if hasattr(self.model, "module") else self.model
        return {"model": model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def save(self, path):
        torch.save(self.state_dict(), path)


def run(net, optimizer, rank):
    learner = Learner(DDP(net, device_ids=[rank]), optimizer)
    if rank == 0:
        learner.save("model.pt")
