import torch
from torch.nn.parallel import DistributedDataParallel as DDP


class Learner:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def state_dict(self):
        return {
            "model": {k: v.cpu() for k, v in self.model.state_dict().items()},  # expect: checkpoint-module-prefix
            "optimizer": self.optimizer.state_dict(),
        }

    def save(self, path):
        torch.save(self.state_dict(), path)


def run(net, optimizer, rank):
    learner = Learner(DDP(net, device_ids=[rank]), optimizer)
    if rank == 0:
        learner.save("model.pt")


def save_checkpoint(state, path):
    torch.save(state, path)


def main(net, rank):
    model = DDP(net, device_ids=[rank])
    if rank == 0:
        save_checkpoint({"epoch": 1, "state_dict": model.state_dict()}, "m.pt")  # expect: checkpoint-module-prefix
