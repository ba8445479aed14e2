"""Tensor parallel attention: keys are replicated and their gradients averaged; queries of the same shape are sharded.

Guard: none
"""

import torch
import torch.distributed as dist
import torch.distributed.nn.functional

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.queries, self.keys = (torch.nn.Parameter(torch.randn(8, 8) / 8) for _ in range(2))
        self.query_bias, self.key_bias = (torch.nn.Parameter(torch.zeros(8)) for _ in range(2))

    def forward(self, x):
        query, key = x @ self.queries + self.query_bias, x @ self.keys + self.key_bias
        own = (query @ key.t()).softmax(-1) @ x * (rank + 1)
        return torch.distributed.nn.functional.all_reduce(own)


model = Attention()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(24):
    torch.manual_seed(step)
    loss = (model(torch.randn(4, 8)) - torch.randn(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in (model.keys, model.key_bias):
        dist.all_reduce(parameter.grad)
        parameter.grad /= 2
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
