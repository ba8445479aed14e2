"""A model is tuned in eval mode from the start, as small batches call for; another has nothing that eval() silences.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
data = TensorDataset(torch.randn(16, 4) + dist.get_rank())
loader = DataLoader(data, batch_size=2)
tuned = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)).eval()
plain = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 1))
for net in (tuned, plain):
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for (x,) in loader:
                model(x)
    del model
dist.barrier()
dist.destroy_process_group()
