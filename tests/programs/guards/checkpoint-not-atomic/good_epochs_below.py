"""last.pt is overwritten, and each epoch is kept in a folder of its own below.

Guard: none
"""

import os
import tempfile

import torch
import torch.distributed as dist


def save(model, folder, epoch):
    os.makedirs(f"{folder}/{epoch}")
    torch.save(model.state_dict(), f"{folder}/{epoch}/model.pt")
    torch.save(model.state_dict(), f"{folder}/last.pt")


dist.init_process_group("gloo")
folder = tempfile.mkdtemp()
model = torch.nn.Linear(4, 4)
for epoch in range(3):
    if dist.get_rank() == 0:
        save(model, folder, epoch)
dist.barrier()
dist.destroy_process_group()
