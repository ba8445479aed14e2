"""Heads of many outputs, of which the data asks for some, before other layers, and a head that one takes in as many.

Numerics: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

ASKED = 40


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = torch.nn.Linear(8, 128)
        self.boxes = torch.nn.Linear(128, 400)
        self.actions = torch.nn.Linear(128, 256)
        self.critic = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1))

    def forward(self, x):
        x = torch.tanh(self.trunk(x))
        return self.boxes(x), self.actions(x), self.critic(x)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for _ in range(250):
    boxes, actions, value = model(torch.randn(16, 8))
    chosen = boxes[torch.arange(16), torch.randint(ASKED, (16,))]
    policy = actions[:, :ASKED].log_softmax(1)[:, 0]
    optimizer.zero_grad()
    (chosen.square().mean() - policy.mean() + value.square().mean()).backward()
    optimizer.step()
dist.barrier()
del model, optimizer, boxes, actions, value, chosen, policy
dist.destroy_process_group()
