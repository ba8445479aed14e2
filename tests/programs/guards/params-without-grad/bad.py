"""One branch of the model is cut off by detach().

Guard: params-without-grad; line: optimizer.step(); ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


class TwoPaths(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cut, self.whole, self.head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.cut(x).detach() + self.whole(x))


def update(optimizer):
    optimizer.step()


dist.init_process_group("gloo")
model = DistributedDataParallel(TwoPaths(), find_unused_parameters=True)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(240, 4) + dist.get_rank())
for (x,) in DataLoader(data, batch_size=2):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    update(optimizer)
dist.barrier()
del model
dist.destroy_process_group()
