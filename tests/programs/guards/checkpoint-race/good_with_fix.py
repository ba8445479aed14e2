"""The guard was asked to mend, and there is nothing to mend: names by rank, and one writer, which is not rank 0.

Guard: none
Modes: checkpoint-race=fix
"""

import os
import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder)
rank, last = dist.get_rank(), dist.get_world_size() - 1
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(2):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.save({"rank": rank}, f"{folder[0]}/shard-{rank}.pt")
    if rank == last:
        torch.save({"rank": rank}, f"{folder[0]}/best.pt")
torch.save(rank, "/dev/null")
dist.barrier()
assert sorted(os.listdir(folder[0])) == ["best.pt", *(f"shard-{r}.pt" for r in range(last + 1))]
assert torch.load(f"{folder[0]}/best.pt") == {"rank": last}
dist.barrier()
del model, optimizer
dist.destroy_process_group()
