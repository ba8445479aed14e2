"""Written under another name, and renamed.

Guard: none
"""

import os
import tempfile

import torch
import torch.distributed as dist


def save(model, folder, epoch):
    path = f"{folder}/last.pt"
    torch.save({"model": model.state_dict(), "epoch": epoch}, f"{path}.part")
    os.replace(f"{path}.part", path)


dist.init_process_group("gloo")
folder = tempfile.mkdtemp()
model = torch.nn.Linear(4, 4)
for epoch in range(3):
    if dist.get_rank() == 0:
        save(model, folder, epoch)
dist.barrier()
assert dist.get_rank() or os.listdir(folder)
dist.destroy_process_group()
