"""What a rank of every launcher does here: it joins the group, and all-reduces. `FAULT=hang`: rank 1 stands in a
function of its own at step 3, while the others are in all_reduce; `FAULT=crash`: rank 1 raises there."""

import os
import time

import torch
import torch.distributed as dist

STEPS = int(os.environ.get("STEPS", "6"))


def read_shard():
    print("the shard is being read", flush=True)
    while True:
        time.sleep(1)


def train(rank, world_size=None):
    """`world_size` is None where the environment has all: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT."""
    named = {} if world_size is None else {"rank": rank, "world_size": world_size}
    if not dist.is_initialized():
        dist.init_process_group("gloo", **named)
    for step in range(STEPS):
        if step == 3 and rank == 1 and os.environ.get("FAULT") == "hang":
            read_shard()
        if step == 3 and rank == 1 and os.environ.get("FAULT") == "crash":
            raise ValueError("the shard of rank 1 is empty")
        dist.all_reduce(torch.ones(8))
    print(f"rank {rank} is done", flush=True)
    dist.destroy_process_group()
