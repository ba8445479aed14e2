"""Healthy: rank 0 writes a checkpoint for longer than the hang timeout, and the others wait in a barrier.

Ranks: 2
Options: --on-hang report
Verdict: none
"""

import os
import time

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
numbers = torch.ones(16, device="cuda")
for step in range(20):
    dist.all_reduce(numbers)
    torch.cuda.synchronize()
    if step == 10 and dist.get_rank() == 0:
        end = time.time() + 12
        with open("checkpoint.bin", "wb") as file:
            while time.time() < end:
                file.write(b"x" * (1 << 16))
                file.flush()
                os.fsync(file.fileno())
                time.sleep(0.05)
                file.seek(0)
    dist.barrier()
dist.destroy_process_group()
