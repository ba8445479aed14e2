"""Two optimizers: the generator's backward adds to what the discriminator clears before its own.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 4))
judge = DistributedDataParallel(torch.nn.Linear(4, 1))
of_model = torch.optim.Adam(model.parameters(), lr=1e-3)
of_judge = torch.optim.Adam(judge.parameters(), lr=1e-3)
for _ in range(12):
    of_judge.zero_grad(set_to_none=False)
    judge(torch.randn(2, 4)).sum().backward()
    made = model(torch.randn(2, 4))
    judge(made.detach()).sum().backward()
    of_judge.step()
    of_model.zero_grad()
    judge(made).sum().backward()
    of_model.step()
del judge
dist.barrier()
del model
dist.destroy_process_group()
