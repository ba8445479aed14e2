"""The end of a coalescing manager waits; a collective without async_op waits itself; others' isend is another one."""

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _coalescing_manager


def step(tensors: list[torch.Tensor], comm: object, *, later: bool) -> None:
    with _coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor, async_op=True)
    dist.all_reduce(tensors[0])
    dist.all_reduce(tensors[0], async_op=False)
    dist.all_reduce(tensors[0], async_op=later)
    comm.isend(tensors[0], dest=1)
