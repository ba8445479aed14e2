"""The optimizer steps while gradients are still being added up."""

import torch
import torch.distributed as dist


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, async_op=True)  # expect: work-not-waited
    optimizer.step()
