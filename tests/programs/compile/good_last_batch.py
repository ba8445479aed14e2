"""The last batch is shorter: torch makes the length dynamic, once.

Compile: none
"""

import torch


@torch.compile(backend="eager")
def scaled(x):
    return x * 2 + 1


for _ in range(3):
    for length in (8, 8, 5):
        scaled(torch.randn(length, 8))
