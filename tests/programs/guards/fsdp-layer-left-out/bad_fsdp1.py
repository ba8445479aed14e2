"""Each layer is wrapped by hand, and the first is not.

Guard: fsdp-layer-left-out; line: model(torch.randn(2, 2048)).sum().backward(); ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
layers = [torch.nn.Linear(2048, 2048, bias=False) for _ in range(4)]
cpu = torch.device("cpu")
model = FSDP(torch.nn.Sequential(layers[0], *(FSDP(layer, device_id=cpu) for layer in layers[1:])), device_id=cpu)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(2, 2048)).sum().backward()
    optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
