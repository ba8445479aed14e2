"""One value of a batch of rank 1, given as a keyword, is inf; what the model's forward makes of it is gone later.

Numerics: non-finite; error; ranks: 1; says: at step 7 the batch already held values that are not finite (1 inf)
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Shifted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = torch.nn.Dropout(0.1)
        self.linear = torch.nn.Linear(8, 1)

    def forward(self, x=None):
        return self.linear(self.drop(x + 0.0))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(Shifted())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(1, 12):
    x = torch.randn(4, 8)
    if step == 7 and dist.get_rank() == 1:
        x[0, 0] = float("inf")
    loss = model(x=x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.barrier()
del model, optimizer, loss
dist.destroy_process_group()
