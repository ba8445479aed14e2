"""Weights and optimizer lie in two folders, and both files are overwritten: neither stands in for the other.

Guard: checkpoint-not-atomic; line: torch.save(state, path); ranks: 0
"""

import os
import tempfile

import torch
import torch.distributed as dist


def save(state, path):
    torch.save(state, path)


dist.init_process_group("gloo")
folder = tempfile.mkdtemp()
model = torch.nn.Linear(4, 4)
for name in ("weights", "optimizer"):
    os.mkdir(f"{folder}/{name}")
for _ in range(3):
    for name in ("weights", "optimizer"):
        if dist.get_rank() == 0:
            save(model.state_dict(), f"{folder}/{name}/last.pt")
dist.barrier()
dist.destroy_process_group()
