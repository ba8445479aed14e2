"""Ranks 0 and 1 exchange a list of objects once; later the kernel's SIGKILL ends rank 3.

Verdict: rank-killed; ranks: 3; exit: 137
"""

import os
import signal

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
said = [{"rank": rank}]
if rank == 0:
    dist.send_object_list(said, dst=1)
elif rank == 1:
    dist.recv_object_list(said, src=0)
for step in range(20):
    dist.all_reduce(torch.ones(8))
    if rank == 3 and step == 10:
        os.kill(os.getpid(), signal.SIGKILL)
dist.destroy_process_group()
