"""Rank 0 tokenises the data set for half a minute, and the others wait for it in a barrier, before any step.

Fools "three ranks in a barrier and one missing": rank 0 computes and comes.
Quiet for: 25 s
Verdict: none; exit: 0
On two ranks.
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def tokenise(seconds):
    end, vocabulary = time.monotonic() + seconds, {}
    while time.monotonic() < end:
        for word in ("to be or not to be that is the question " * 4_000).split():
            vocabulary[word] = vocabulary.get(word, 0) + 1
        time.sleep(0.03)  # its core is wanted by others, too
    return vocabulary


dist.init_process_group("gloo")
if dist.get_rank() == 0:
    tokenise(25)
dist.barrier()
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for _ in range(50):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    time.sleep(0.05)
dist.barrier()
del model, optimizer
dist.destroy_process_group()
