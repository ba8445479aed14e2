"""The causal mask is given as a tensor, where is_causal=True would leave half of the work out.

Verdict: causal-mask-given; ranks: 0-3
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(32, 96)
        self.register_buffer("mask", torch.ones(512, 512, dtype=torch.bool).tril())

    def forward(self, inputs):
        query, key, value = self.project(inputs).chunk(3, dim=-1)
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=self.mask)  # the fault


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(Attention(), broadcast_buffers=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(10):
    model(torch.randn(2, 4, 512, 32)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
