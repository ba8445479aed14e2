"""Under FSDP2 a hook of rank 1 sleeps in the backward, before the gradients of the first layer are reduced.

Hang: stuck-in-python; ranks: 1; says: fsdp_backward_rank_sleeps.py:26; side: host; module: layers.0; phase: backward
"""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))
        self.step = 0

    def late(self, _gradient):
        if dist.get_rank() == 1 and self.step == 4:
            time.sleep(3600)

    def forward(self, x):
        self.step += 1
        for number, layer in enumerate(self.layers):
            x = layer(x)
            if number == 0:
                x.register_hook(self.late)
        return x


model = Net().cuda()
for layer in model.layers:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    model(torch.ones(4, 8, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
