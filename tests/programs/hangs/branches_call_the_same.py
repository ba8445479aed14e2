"""Rank 0 alone trains with a log, in its own branch; but what parts it from the others is a batch that is too long.

Verdict: collective-mismatch; ranks: 0
"""

import torch
import torch.distributed as dist


def train(lengths, log=None):
    for step in range(100):
        if lengths[step % len(lengths)] > 512:
            dist.barrier()  # what is skipped is skipped together, its author thought
            continue
        loss = torch.ones(16)
        dist.all_reduce(loss)
        if log is not None:
            log.append(loss.sum().item())


dist.init_process_group("gloo")
rank = dist.get_rank()
lengths = [100, 200, 300, 400, 500, 600] if rank == 0 else [100, 200, 300, 400, 500, 300]
if rank == 0:
    train(lengths, log=[])
else:
    train(lengths)
