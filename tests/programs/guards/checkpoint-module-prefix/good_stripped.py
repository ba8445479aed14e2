"""The names of the compiled model are saved, and where they are loaded the prefix is taken away, as nanoGPT does.

Guard: none
"""

import io

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def load(model, file):
    state = torch.load(file)["model"]
    model.load_state_dict({name.removeprefix("_orig_mod."): value for name, value in state.items()})


dist.init_process_group("gloo")
inner = torch.compile(torch.nn.Linear(4, 1), backend="eager")
model = DistributedDataParallel(inner)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()

if dist.get_rank() == 0:
    file = io.BytesIO()
    torch.save({"model": inner.state_dict()}, file)
    file.seek(0)
    load(torch.nn.Linear(4, 1), file)
dist.barrier()
del model, optimizer, inner
dist.destroy_process_group()
