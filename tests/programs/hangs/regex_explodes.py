"""Rank 1 cleans a text with a pattern that backtracks exponentially: C code that burns CPU and holds the GIL.

Verdict: stuck-in-native; ranks: 1; says: regex_explodes.py:15
On two ranks.
"""

import re

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def words(text):
    return re.match(r"(\w+\s?)+$", text)


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100):
    bad = step == 4 and dist.get_rank() == 1
    words("a" * 70 + "!" if bad else "to be or not to be")
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
