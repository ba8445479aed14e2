"""A generator and a critic that step by turns, each with an optimizer of its own.

Numerics: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)


def net(ends_with):
    return torch.nn.Sequential(
        torch.nn.Linear(8, 64), torch.nn.LeakyReLU(0.2), torch.nn.Linear(64, 64), torch.nn.LeakyReLU(0.2),
        torch.nn.Linear(64, ends_with),
    )  # fmt: skip


makes, judges = DistributedDataParallel(net(8)), DistributedDataParallel(net(1), broadcast_buffers=False)
maker = torch.optim.Adam(makes.parameters(), lr=2e-4, betas=(0.5, 0.9))
judge = torch.optim.Adam(judges.parameters(), lr=2e-4, betas=(0.5, 0.9))
say = torch.nn.functional.binary_cross_entropy_with_logits
for step in range(300):
    judge.zero_grad()
    true = torch.randn(16, 8) * 0.5 + 1
    answer = judges(torch.cat([true, makes(torch.randn(16, 8)).detach()]))
    say(answer, torch.cat([torch.ones(16, 1), torch.zeros(16, 1)])).backward()
    judge.step()
    if step % 2:
        maker.zero_grad()
        say(judges.module(makes(torch.randn(16, 8))), torch.ones(16, 1)).backward()
        maker.step()
dist.barrier()
del makes, judges, maker, judge
dist.destroy_process_group()
