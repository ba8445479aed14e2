"""Rank 1 raises and takes its time to clean up, so that its peers die of a closed connection before it does.

Verdict: rank-exception; ranks: 1; exit: 1; says: planted in rank 1
On two ranks.
"""

import os
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
if os.environ["RANK"] == "1":
    try:
        raise RuntimeError("planted in rank 1")
    finally:
        dist.destroy_process_group()
        time.sleep(3)
while True:
    dist.all_reduce(torch.ones(1))
