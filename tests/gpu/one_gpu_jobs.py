"""Five training jobs on one GPU; the last line printed is the peak of torch's allocator in bytes, as JSON.

torchrun --nproc-per-node 1 one_gpu_jobs.py ddp|fsdp2|amp|checkpointing|convolution
"""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS, BLOCKS, TOKENS, BATCH, VOCABULARY = 1024, 16, 6, 1024, 8, 32_000


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        heads = self.qkv(self.norm1(x)).view(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self, recompute):
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.recompute = recompute

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.head(x)


def convolutions():
    layers = [nn.Conv2d(3, 64, 7, 2, 3)]
    for width in (64, 128, 256):
        layers += [nn.Conv2d(width, 2 * width, 3, 2, 1), nn.BatchNorm2d(2 * width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def main(job):
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    model = (convolutions() if job == "convolution" else Transformer(job == "checkpointing")).cuda()
    if job == "fsdp2":
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    else:
        model = DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        if job == "convolution":
            batch, labels = (
                torch.randn(64, 3, 224, 224, device="cuda"),
                torch.zeros(64, dtype=torch.long, device="cuda"),
            )
        else:
            batch = labels = torch.zeros(BATCH, TOKENS, dtype=torch.long, device="cuda")
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=job == "amp"):
            output = model(batch)
            loss = nn.functional.cross_entropy(output.flatten(0, -2), labels.flatten())
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()
    peaks = {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
    dist.destroy_process_group()
    print(json.dumps(peaks))


main(sys.argv[1])
