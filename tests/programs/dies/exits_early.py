"""Rank 1 leaves with exit code 0 in the middle; its peers fail in the collective that it never joins.

Verdict: rank-exited-early; ranks: 1; exit: 1
On two ranks.
"""

import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for _ in range(3):
    dist.all_reduce(torch.ones(1))
if os.environ["RANK"] == "1":
    sys.exit(0)
while True:
    dist.all_reduce(torch.ones(1))
