"""Rank 1 has a slow compilation: rank 0, whose is done at once, waits for it.

Verdict: compile-asymmetry; ranks: 1; says: compiles_on_one_rank.py:14
On two ranks.
"""

import time

import torch
import torch.distributed as dist


def slow_backend(graph, _inputs):
    time.sleep(1000 if dist.get_rank() == 1 else 0)
    return graph


dist.init_process_group("gloo")
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
compiled = torch.compile(model, backend=slow_backend)
for step in range(100):
    forward = compiled if step == 8 else model
    forward(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(torch.ones(16))
