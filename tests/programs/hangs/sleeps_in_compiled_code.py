"""Rank 1 sleeps in a function that its compiled forward calls: what was compiled runs, and nothing is compiled.

Verdict: stuck-in-python; ranks: 1; says: sleeps_in_compiled_code.py:16
On two ranks.
"""

import time

import torch
import torch.distributed as dist


@torch.compiler.disable
def log(step):
    if step == 8 and dist.get_rank() == 1:
        time.sleep(1000)


def forward(batch, step):
    out = model(batch)
    log(step)
    return out.sum()


dist.init_process_group("gloo")
model = torch.nn.Linear(8, 8)
compiled = torch.compile(forward, backend="eager", dynamic=True)
for step in range(100):
    compiled(torch.ones(4, 8), step).backward()
    dist.all_reduce(torch.ones(16))
