"""Records with tensors in them are kept in one of a dict's lists. Another list of that dict has numbers, and another
function has a dict of that name.

Verdict: memory-leak; says: `history['outputs']` (records_kept.py:39)
"""

import time
from collections import defaultdict
from dataclasses import dataclass

import torch

model = torch.nn.Linear(64, 1024)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


@dataclass
class Record:
    step: int
    logits: torch.Tensor


def evaluate():
    history = defaultdict(list)
    for step in range(3):
        history["outputs"].append(Record(step, model(torch.randn(32, 64)).detach()))
    return len(history)


def train():
    history = defaultdict(list)
    for step in range(200):
        optimizer.zero_grad()
        logits = model(torch.randn(32, 64))
        logits.square().mean().backward()
        optimizer.step()
        time.sleep(0.01)  # as long as a real step: there are lines enough to judge by
        history["steps"].append(step)
        history["outputs"].append(Record(step, logits.detach()))


evaluate()
train()
