"""A job in which one thing goes wrong at a known place; what torch does about it is measured from outside.

    torchrun --nproc-per-node 4 faults.py none|skipped|size|order|killed      (other faults stand in the box's plan)

Every rank prints `rank N: KIND of exception` where its host raises. The group's timeout is 8 s.
"""

import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

kind = sys.argv[1] if len(sys.argv) > 1 else "none"
rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", local)
torch.cuda.set_device(device)
try:
    dist.init_process_group("nccl", timeout=timedelta(seconds=8), device_id=device if "eager" in sys.argv else None)
    data = torch.ones(1000, device=device)
    for _ in range(4):
        dist.all_reduce(data)
    torch.cuda.synchronize()
    faulty = rank == 1
    if kind == "killed" and faulty:
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "skipped" and faulty:
        time.sleep(120)
    elif kind == "size":
        dist.all_reduce(data[:999] if faulty else data)
    elif kind == "order" and faulty:
        dist.broadcast(data, 0)
    elif kind in ("order", "skipped"):
        dist.all_reduce(data)
    for _ in range(20):
        torch.ones(10, device=device)
        dist.all_reduce(data)
        torch.cuda.synchronize()
        time.sleep(0.05)
    dist.destroy_process_group()
except Exception as error:
    print(f"rank {rank}: {type(error).__name__}: {str(error).splitlines()[0][:150]}", flush=True)
    raise
