"""A small language model trained in the manner of nanoGPT: DDP, gradient accumulation, evaluation, a checkpoint."""

import contextlib
import math
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

VOCABULARY, BLOCK, WIDTH = 65, 16, 32
MICRO_STEPS, STEPS, EVALUATE_EVERY = 2, 40, 10


class Text(torch.utils.data.Dataset):
    def __init__(self, length=4096):
        generator = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(VOCABULARY, (length,), generator=generator)

    def __len__(self):
        return len(self.tokens) - BLOCK - 1

    def __getitem__(self, index):
        # here: batch
        part = self.tokens[index : index + BLOCK + 1]
        return part[:-1], part[1:]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(BLOCK, WIDTH)
        self.block = nn.TransformerEncoderLayer(WIDTH, 2, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens, targets):
        x = self.embedding(tokens) + self.positions(torch.arange(tokens.shape[1]))
        # here: forward
        logits = self.head(self.block(x))
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


@torch.no_grad()
def evaluate(model, data):
    model.eval()
    losses = torch.stack([model.module(*batch) for batch in data])
    # here: evaluation
    mean = losses.mean()
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    model.train()
    return mean.item()


def batches(loader, sampler):
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1337 + rank)
    data = Text()
    sampler = torch.utils.data.DistributedSampler(data)
    loader = torch.utils.data.DataLoader(data, batch_size=8, sampler=sampler, num_workers=1, drop_last=True)
    held_out = [(part[None, :-1], part[None, 1:]) for part in data.tokens[: 4 * (BLOCK + 1)].split(BLOCK + 1)]
    # here: start
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    feed = batches(loader, sampler)
    best = math.inf
    for step in range(STEPS):
        if step % EVALUATE_EVERY == 0:
            loss = evaluate(model, held_out)
            if loss < best and step:
                best = loss
                if rank == 0:
                    # here: save
                    torch.save({"model": model.module.state_dict()}, os.path.join(sys.argv[1], "checkpoint.pt"))
        for micro_step in range(MICRO_STEPS):
            with contextlib.nullcontext() if micro_step == MICRO_STEPS - 1 else model.no_sync():
                loss = model(*next(feed)) / MICRO_STEPS
                # here: loss
                loss.backward()
        # here: step
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 0 and rank == 0:
            print(f"step {step}: loss {loss.item() * MICRO_STEPS:.4f}", flush=True)
    dist.barrier()
    if rank == 0:
        print("CLIENT OK", world, flush=True)


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
