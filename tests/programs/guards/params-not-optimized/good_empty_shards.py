"""FSDP2: an optimizer has float32 copies of the shards, and rank 1 has no part of the last layer.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 1)).to(torch.bfloat16)
fully_shard(model)
shards = [parameter.to_local() for parameter in model.parameters()]
flat = torch.cat([shard.detach().float().reshape(-1) for shard in shards]).requires_grad_()
optimizer = torch.optim.AdamW([flat], lr=1e-3)
for _ in range(12):
    model.zero_grad()
    model(torch.randn(2, 64, dtype=torch.bfloat16)).float().square().mean().backward()
    flat.grad = torch.cat([p.grad.to_local().float().reshape(-1) for p in model.parameters()])
    optimizer.step()
    for shard, values in zip(shards, flat.detach().split([s.numel() for s in shards]), strict=True):
        shard.data.copy_(values.view_as(shard))
dist.barrier()
del model, optimizer, shards, shard
dist.destroy_process_group()
