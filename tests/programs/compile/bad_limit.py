"""A mode that is text changes with each call, until torch gives up.

Compile: recompile; says: That is torch's limit (8 graphs): from there on it runs uncompiled.
"""

import torch


@torch.compile(backend="eager")
def named(x, name):
    return x + 1 if name else x


for number in range(12):
    named(torch.randn(4), f"call {number}")
