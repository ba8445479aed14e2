"""Trains over gloo; in its first life rank 3 raises after a few steps, in its second all goes well."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(10):
    dist.all_reduce(torch.ones(1))
    if step == 5 and os.environ["RANK"] == "3" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        raise RuntimeError("planted in the first attempt")
dist.barrier()
dist.destroy_process_group()
print("finished in life", os.environ["TORCHELASTIC_RESTART_COUNT"])
