"""The policy gathers in float32 what is kept in bfloat16.

Guard: fsdp-dtype-mismatch; line: model(torch.randn(2, 64)).sum().backward(); ranks: 0-1
"""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision

dist.init_process_group("gloo")
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(3))).bfloat16()
model = FSDP(model, mixed_precision=MixedPrecision(param_dtype=torch.float32), device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(2, 64)).sum().backward()
    optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
