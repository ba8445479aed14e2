"""Two faults in one job of DDP: rank 1 loads from a slow disk, and all ranks have attention on the math path."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.data import DataLoader, Dataset


class Files(Dataset):
    def __len__(self):
        return 2 * 14

    def __getitem__(self, index):
        if os.environ["RANK"] == "1":
            time.sleep(0.03)  # slow on rank 1
        return torch.randn(2, 768, 32)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(32, 96)

    def forward(self, inputs):
        query, key, value = self.project(inputs).chunk(3, dim=-1)
        with sdpa_kernel(SDPBackend.MATH):
            return nn.functional.scaled_dot_product_attention(query, key, value)  # on the math path


def main():
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(Attention())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for inputs in DataLoader(Files(), batch_size=2):
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    del model, optimizer
    dist.destroy_process_group()


main()
