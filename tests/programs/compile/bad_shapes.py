"""Every batch has another length, and shapes are not to be dynamic.

Compile: recompile; says: 4 times, since a guard failed at bad_shapes.py:9 in scaled: tensor 'x' size mismatch
"""

import torch


@torch.compile(backend="eager", dynamic=False)
def scaled(x):
    return x * 2 + 1


for length in (4, 5, 6, 7, 8):
    scaled(torch.randn(length, 8))
