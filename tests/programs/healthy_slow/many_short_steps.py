"""Short steps for half a minute and nothing else: the control, which should fool nothing.

Quiet for: 1 s
Verdict: none; exit: 0
On two ranks.
"""

import gc
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
end = time.monotonic() + 25
go_on = torch.ones(1)
while go_on:
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    go_on = torch.tensor([float(time.monotonic() < end)])
    dist.all_reduce(go_on, op=dist.ReduceOp.MIN)  # all leave together
    time.sleep(0.01)
dist.barrier()
del model, optimizer
gc.collect()  # FSDP's modules and their hooks hold each other, and the group
dist.destroy_process_group()
