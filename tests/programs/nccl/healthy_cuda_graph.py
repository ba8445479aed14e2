"""Healthy: the step is captured once, its all_reduce with it, and replayed for each batch: no host calls a collective.

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
for batch in torch.utils.data.DataLoader(torch.ones(4000, 4), batch_size=4):
    x.copy_(batch)
    graph.replay()
    torch.cuda.synchronize()
    time.sleep(0.012)
dist.barrier()
dist.destroy_process_group()
