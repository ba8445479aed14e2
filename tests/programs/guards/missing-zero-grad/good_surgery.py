"""The gradients of two tasks come from autograd.grad, which adds nothing up, and are written over those of before.

Guard: none
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
parameters = list(model.parameters())
optimizer = torch.optim.SGD(parameters, lr=0.01)
for _ in range(12):
    losses = model(torch.randn(8, 4)).square().mean(0)
    one = torch.autograd.grad(losses[0], parameters, retain_graph=True)
    other = torch.autograd.grad(losses[1], parameters)
    for parameter, a, b in zip(parameters, one, other, strict=True):
        both = a + b
        dist.all_reduce(both)
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        parameter.grad.copy_(both)
    optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
