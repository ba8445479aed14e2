"""The forward is under autocast, the loss is not.

Guard: loss-outside-autocast; line: loss.backward(); ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def outputs_of(model, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return model(x)


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

data = TensorDataset(torch.randn(24, 4) + dist.get_rank(), torch.randn(24, 1))
for x, y in DataLoader(data, batch_size=2):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(outputs_of(model, x), y.bfloat16()) / 2
    loss.backward()
    optimizer.step()
dist.barrier()
del model
dist.destroy_process_group()
