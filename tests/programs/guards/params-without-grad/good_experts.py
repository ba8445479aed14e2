"""Experts that are seldom used: one in each seventeenth step, one in steps 130 to 140 alone; another part is frozen.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


class Experts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.often, self.seldom, self.late = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)
        self.frozen = torch.nn.Linear(4, 4).requires_grad_(False)

    def forward(self, x, step):
        x = self.frozen(x)
        out = self.often(x)
        if step % 17 == 5:
            out = out + self.seldom(x)
        return out + self.late(x) if 130 <= step < 140 else out


def main():
    model = DistributedDataParallel(Experts(), find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    data = TensorDataset(torch.randn(440, 4) + dist.get_rank())
    for step, (x,) in enumerate(DataLoader(data, batch_size=2)):
        optimizer.zero_grad()
        model(x, step).square().mean().backward()
        optimizer.step()
    dist.barrier()


dist.init_process_group("gloo")
main()
dist.destroy_process_group()
