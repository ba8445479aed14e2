"""Two names take turns, and the other one is whole while one is written.

Guard: none
"""

import os
import tempfile

import torch
import torch.distributed as dist


def save(model, folder, epoch):
    torch.save({"model": model.state_dict(), "epoch": epoch}, f"{folder}/{epoch % 2}.pt")


dist.init_process_group("gloo")
folder = tempfile.mkdtemp()
model = torch.nn.Linear(4, 4)
for epoch in range(3):
    if dist.get_rank() == 0:
        save(model, folder, epoch)
dist.barrier()
assert dist.get_rank() or os.listdir(folder)
dist.destroy_process_group()
