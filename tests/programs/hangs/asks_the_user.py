"""Rank 1 found something odd and asks on the terminal whether to go on, where nobody looks.

Verdict: stuck-on-io; ranks: 1; says: asks_the_user.py:22
On two ranks.
"""

import os
import pty
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
terminal, side = pty.openpty()  # what a login session would have given this process
os.dup2(side, 0)
sys.stdin = open(0, closefd=False)
for step in range(100):
    loss = torch.ones(1)
    dist.all_reduce(loss)
    if step == 4 and dist.get_rank() == 1:
        input("the loss is odd, go on? ")
