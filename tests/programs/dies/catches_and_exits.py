"""Every rank turns each exception into sys.exit(1), as Hydra does; rank 1 had the first one.

Verdict: rank-exception; ranks: 1; exit: 1; says: catches_and_exits.py:16
On two ranks.
"""

import sys

import torch
import torch.distributed as dist


def train():
    for step in range(100):
        if step == 3 and dist.get_rank() == 1:
            raise ValueError("row 7 has 12 columns")
        dist.all_reduce(torch.ones(1))


dist.init_process_group("gloo")
try:
    train()
except Exception as error:
    print(f"Error: {error}", file=sys.stderr)
    sys.exit(1)
