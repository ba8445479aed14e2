"""Every rank saves its own state to one name, twice, and the guard was asked to keep them apart.

Guard: checkpoint-race; line: torch.save({"step": step, "rank": dist.get_rank()}, path); ranks: 0-1
Modes: checkpoint-race=fix
"""

import os
import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def save(step, path):
    torch.save({"step": step, "rank": dist.get_rank()}, path)


def in_turn(order, step, path):
    for rank in order:
        if rank == dist.get_rank():
            save(step, path)
        dist.barrier()


dist.init_process_group("gloo")
folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder)
path = f"{folder[0]}/latest.pt"
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step, order in enumerate([(0, 1), (1, 0)]):  # whoever comes first, the name is rank 0's
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    in_turn(order, step, path)
    assert sorted(os.listdir(folder[0])) == ["latest.pt", "latest.pt.rank00001"], os.listdir(folder[0])
    assert torch.load(path) == {"step": step, "rank": 0}
    assert torch.load(f"{path}.rank00001") == {"step": step, "rank": 1}
    dist.barrier()
del model, optimizer
dist.destroy_process_group()
