"""Every rank saves to one name, in a function that does not know of ranks.

Guard: checkpoint-race; line: torch.save({"model": model.state_dict(), "epoch": 1}, path); ranks: 0-1
"""

import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def save(model, path):
    torch.save({"model": model.state_dict(), "epoch": 1}, path)


dist.init_process_group("gloo")
folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder)
model = torch.nn.Linear(4, 1)
trained = DistributedDataParallel(model)
save(model, f"{folder[0]}/latest.pt")
del trained
dist.barrier()
del model
dist.destroy_process_group()
