"""On rank 1 the shard is torn; its `finally` calls a barrier, while the others are in the all_reduce.

Where the rank can still be asked at the end, the error that it handles comes first, and the mismatch second.

Fault: nccl-mismatch
Hang: collective-mismatch|rank-exception; ranks: 1; says: the shard is torn
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=12))
numbers = torch.ones(16, device="cuda")
try:
    for step in range(100):
        if dist.get_rank() == 1 and step == 3:
            raise ValueError("the shard is torn")
        dist.all_reduce(numbers)
        torch.cuda.synchronize()
finally:
    dist.barrier()
