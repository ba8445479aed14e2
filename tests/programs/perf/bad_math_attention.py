"""Flash attention was switched off once, to debug it, and never on again.

Verdict: attention-not-fused; ranks: 0-3
"""

import torch
import torch.distributed as dist
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(32, 96)

    def forward(self, inputs):
        query, key, value = self.project(inputs).chunk(3, dim=-1)
        with sdpa_kernel(SDPBackend.MATH):
            return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)  # the fault


dist.init_process_group("gloo")
model = DistributedDataParallel(Attention())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(10):
    model(torch.randn(2, 2, 384, 32)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
