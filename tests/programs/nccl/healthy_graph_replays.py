"""Healthy: the whole step is a CUDA graph. For longer than a hang takes a rank does nothing but replay it: no batch, no
optimizer, no collective from Python.

Ranks: 2
Verdict: none
"""

import os
import time

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
x = torch.ones(4, 4, device="cuda")
dist.all_reduce(x)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    x.fill_(1.0)
    dist.all_reduce(x)
for _ in range(400):  # as often on every rank: each replay has a collective
    graph.replay()
    torch.cuda.synchronize()
    time.sleep(0.05)
dist.barrier()
dist.destroy_process_group()
