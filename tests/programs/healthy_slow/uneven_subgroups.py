"""Two groups of two work at their own pace: one makes steps all the time, the other waits 25 s for one long batch.

Fools a rule that compares sequence numbers across groups, and one that looks at single groups without patience.
Quiet for: 25 s
Verdict: none; exit: 0
"""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
mine = groups[rank // 2]
for step in range(60):
    if step == 30 and rank == 3:
        end = time.monotonic() + 25
        while time.monotonic() < end:
            for _ in range(200):
                torch.ones(64, 64) @ torch.ones(64, 64)
            time.sleep(0.02)  # its core is wanted by others, too
    time.sleep(0.5 if rank < 2 else 0.1)
    dist.all_reduce(torch.ones(64), group=mine)
dist.barrier()
dist.destroy_process_group()
