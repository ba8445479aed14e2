import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.spare = nn.Linear(8, 2)

    def forward(self, inputs):
        return self.body(inputs)


def main():
    dist.init_process_group("gloo")
    return DDP(Net(), find_unused_parameters=True)
