import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.auxiliary_head = nn.Linear(8, 2)  # expect: params-without-grad
        self.act = nn.ReLU()

    def forward(self, inputs):
        return self.act(self.body(inputs))


def main():
    dist.init_process_group("gloo")
    model = DDP(Net())
    model.eval()
    return model
