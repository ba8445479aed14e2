"""Every handle is waited for, at once or later."""

import torch
import torch.distributed as dist


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    works = [dist.all_reduce(p.grad, async_op=True) for p in model.parameters()]
    works.append(dist.isend(torch.ones(1), dst=1))
    for work in works:
        work.wait()
    dist.irecv(torch.ones(1), src=1).wait()
    optimizer.step()
