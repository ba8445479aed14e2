"""The evaluation is decorated to run on rank 0 only, and averages its loss over all ranks.

Verdict: rank-conditional-collective; ranks: 0; says: `@rank_zero_only`
"""

import functools

import torch
import torch.distributed as dist


def rank_zero_only(function):
    @functools.wraps(function)
    def wrapped(*values):
        return function(*values) if dist.get_rank() == 0 else None

    return wrapped


@rank_zero_only
def evaluate(x):
    dist.all_reduce(x)


dist.init_process_group("gloo")
for step in range(100):
    parts = [torch.zeros(4) for _ in range(4)]
    dist.all_gather(parts, torch.ones(4))
    if step == 5:
        evaluate(torch.ones(4))
