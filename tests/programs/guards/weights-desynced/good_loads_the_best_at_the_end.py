"""After its last step rank 0 loads the best weights that it had, to save them.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(16):
    if step == 12:
        best = {name: value.clone() for name, value in model.module.state_dict().items()}
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
if dist.get_rank() == 0:
    model.module.load_state_dict(best)
dist.barrier()
