"""A model calls a part of its own `module`: nobody has wrapped it.

Guard: none
"""

import io

import torch
import torch.distributed as dist


class Adapted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.module = torch.nn.Linear(4, 1)


dist.init_process_group("gloo")
model = Adapted()
torch.save(model.state_dict(), io.BytesIO())
dist.barrier()
del model
dist.destroy_process_group()
