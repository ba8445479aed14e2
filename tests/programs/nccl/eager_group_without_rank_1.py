"""With a device id groups are connected as they are made: rank 1 does not make the second one, the others wait there.

Options: --on-hang kill
Verdict: stuck-in-python; ranks: 1; says: eager_group_without_rank_1.py:21
"""

import os
import time

import torch
import torch.distributed as dist

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
numbers = torch.ones(16, device="cuda")
for step in range(10):
    dist.all_reduce(numbers)
    torch.cuda.synchronize()
if dist.get_rank() == 1:
    time.sleep(3600)
group = dist.new_group([0, 1, 2])
dist.all_reduce(numbers, group=group)
torch.cuda.synchronize()
