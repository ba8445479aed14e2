"""The guard was asked to end the script: the region is not entered, and the outer one is left as ever.

Guard: autocast-dtypes-mixed; line: with torch.autocast("cpu", dtype=torch.float16):; ranks: 0-1
Modes: autocast-dtypes-mixed=error
Ends: GuardError
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def loss_of(model, x):
    outputs = model(x)
    with torch.autocast("cpu", dtype=torch.float16):
        return outputs.float().square().mean()


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
steps = 0
try:
    for _ in range(12):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model, torch.randn(2, 4))
        loss.backward()
        optimizer.step()
        steps += 1
finally:
    assert steps == 3, steps  # the first one is before the window, and three times are asked for
    assert (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")) == (False, torch.bfloat16)
