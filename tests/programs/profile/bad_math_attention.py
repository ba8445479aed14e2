"""attention-not-fused: flash attention was switched off once, to debug it, and never on again."""

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(32, 96)

    def forward(self, inputs):
        query, key, value = self.project(inputs).chunk(3, dim=-1)
        with sdpa_kernel(SDPBackend.MATH):
            return nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)  # the fault


def main(profiler):
    model = Attention()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(10):
        loss = model(torch.randn(2, 2, 384, 32)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        profiler.step()
