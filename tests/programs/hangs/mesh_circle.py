"""On a 2-D mesh ranks 0 and 3 reduce over tp first, 1 and 2 over dp first: 0 waits for 1, 1 for 3, 3 for 2, 2 for 0.

Verdict: group-deadlock; ranks: 0-3
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
groups = [mesh.get_group("tp"), mesh.get_group("dp")]
for step in range(100):
    imbalance = dist.get_rank() in (1, 2)  # "the larger shards first"
    for group in reversed(groups) if imbalance and step > 4 else groups:
        dist.all_reduce(torch.ones(64), group=group)
