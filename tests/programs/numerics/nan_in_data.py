"""One sample of one rank's data is NaN.

Numerics: non-finite; error; ranks: 1; says: at step 3 the batch already held values that are not finite
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
torch.manual_seed(0)
x = torch.randn(64, 8)
x[2 * 10 + 1, 3] = float("nan")  # the third batch of rank 1
data = TensorDataset(x, torch.randn(64, 1))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
model = DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 1))
)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for batch, target in loader:
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(batch), target).backward()
    optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
