"""A replay buffer with a length of its own, of named tuples, that the run is too short to fill.

Verdict: none
"""

import time
from collections import deque
from typing import NamedTuple

import torch


class Transition(NamedTuple):
    state: torch.Tensor
    action: int
    then: torch.Tensor


model = torch.nn.Linear(64, 4)
optimizer = torch.optim.Adam(model.parameters())
memory: deque[Transition] = deque(maxlen=2000)
state = torch.randn(32_000)
for _ in range(600):
    then = torch.randn(32_000)
    memory.append(Transition(state, 1, then))
    state = then
    optimizer.zero_grad()
    model(torch.randn(32, 64)).square().mean().backward()
    optimizer.step()
    time.sleep(0.01)  # as long as a real step: there are lines enough to judge by
