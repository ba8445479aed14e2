"""A frozen encoder computes in a type of its own, without gradients; a library's region is the library's.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

# as a library's file would stand in site-packages
library = {"torch": torch}
source = 'def encode(net, x):\n    with torch.autocast("cpu", dtype=torch.float16):\n        return net(x).float()\n'
exec(compile(source, "/usr/lib/python3/site-packages/encoders/model.py", "exec"), library)


def features(encoder, x):
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
        return encoder(x).float()


dist.init_process_group("gloo")
encoder, free = torch.nn.Linear(4, 4).requires_grad_(False), torch.nn.Linear(4, 4).requires_grad_(False)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(12):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = features(encoder, torch.randn(2, 4)) + library["encode"](free, torch.randn(2, 4))
        loss = model(x).float().square().mean()
    loss.backward()
    optimizer.step()
dist.barrier()
del model
dist.destroy_process_group()
