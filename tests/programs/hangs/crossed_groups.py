"""Two groups of all ranks, used in one order by ranks 0 and 1 and in the other by ranks 2 and 3.

Verdict: group-deadlock; ranks: 0-3; says: 0-1
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
gradients, metrics = dist.new_group(range(4)), dist.new_group(range(4))
overlap = dist.get_rank() >= 2  # one node was started with another flag
for step in range(100):
    grad, loss = torch.ones(1000), torch.ones(1)
    if step < 5 or not overlap:
        dist.all_reduce(grad, group=gradients)
        dist.all_reduce(loss, group=metrics)
    else:
        dist.all_reduce(loss, group=metrics)
        dist.all_reduce(grad, group=gradients)
