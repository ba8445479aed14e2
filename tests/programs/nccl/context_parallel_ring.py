"""Context parallelism passes keys around a ring within each group of the mesh; rank 2 waits for a file before its part.

Ranks: 4
Without stacks: unknown by logs
Hang: stuck-in-python; ranks: 2; says: context_parallel_ring.py:36; side: host
"""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.distributed_c10d.default_pg_nccl_timeout = timedelta(seconds=12)
dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "cp"))
cp, dp = mesh["cp"].get_group(), mesh["dp"].get_group()
here = mesh.get_local_rank("cp")
ahead, behind = dist.get_global_rank(cp, (here + 1) % 2), dist.get_global_rank(cp, (here - 1) % 2)


def pass_on(keys):
    incoming = torch.empty_like(keys)
    ops = [dist.P2POp(dist.isend, keys, ahead, cp), dist.P2POp(dist.irecv, incoming, behind, cp)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return incoming


keys, loss = torch.ones(16, device="cuda"), torch.ones(1, device="cuda")
for step in range(100):
    while dist.get_rank() == 2 and step == 3 and not os.path.exists("/nowhere/shard"):
        time.sleep(1)
    keys = pass_on(keys)
    dist.all_reduce(loss, group=dp)
    torch.cuda.synchronize()
