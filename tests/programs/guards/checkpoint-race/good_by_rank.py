"""Each rank saves under a name of its own; all of them rename one after the other.

Guard: none
"""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder)
model = torch.nn.Linear(4, 1)
path = Path(folder[0], "latest.pt")
torch.save(model.state_dict(), path.with_suffix(f".{dist.get_rank()}"))
torch.save(model.state_dict(), f"{tempfile.mkdtemp()}/latest.pt")
torch.save(model.state_dict(), "/dev/null")
for rank in range(dist.get_world_size()):
    if rank == dist.get_rank():
        path.with_suffix(f".{rank}").replace(path)
    dist.barrier()
dist.barrier()
del model
dist.destroy_process_group()
