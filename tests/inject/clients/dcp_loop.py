"""An FSDP2 loop that saves a sharded checkpoint every few steps and keeps the newest two."""

import os
import shutil
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard


def save(model, folder, step):
    # here: save
    dcp.save(get_model_state_dict(model), checkpoint_id=os.path.join(folder, f"step-{step}"))
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(os.path.join(folder, f"step-{step - 20}"), ignore_errors=True)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(32, 32), nn.GELU()) for _ in range(4)), nn.Linear(32, 1))
    # here: start
    for block in model[:-1]:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(dist.get_rank())
    for step in range(1, 41):
        x = torch.randn(16, 32)
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True).tanh())
        # here: loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        # here: step
        if step % 10 == 0:
            save(model, sys.argv[1], step)
    if dist.get_rank() == 0:
        print("CLIENT OK", dist.get_world_size(), flush=True)


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
