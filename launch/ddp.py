"""Train a small GPT with DistributedDataParallel, on CPUs with gloo or GPUs with NCCL, on one rank or a thousand.

    torchrun --nproc-per-node 2 ddp.py
    distdbg launch --nodes 2 ddp.py --epochs 3 --resume

Every rank holds the whole model and reads its own share of the text; gradients are averaged while backward runs.
"""

import argparse
import gc
import os
import time
from contextlib import nullcontext
from itertools import islice
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # DDP imports it: where a group is there by then, it is kept for ever
from gpt import GPT, Config, adamw, loader, warmup_cosine
from torch.nn.parallel import DistributedDataParallel

LOG_EVERY, SAVE_EVERY = 10, 50  # optimizer steps


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10**9, help="stop after so many optimizer steps, epochs or not")
    parser.add_argument("--batch-size", type=int, default=16, help="windows of text in a micro-batch of one rank")
    parser.add_argument("--accumulate", type=int, default=2, help="micro-batches in an optimizer step")
    parser.add_argument("--lr", type=float, default=4e-3, help="the peak, after the warm-up")
    parser.add_argument("--out", type=Path, default=Path("checkpoints/ddp"), help="a folder that all nodes share")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out, if there is one")
    parser.add_argument("--compile", action="store_true", help="compile the blocks with torch.compile")
    return parser.parse_args()


def forward_backward(ddp, group, device, autocast):
    """Accumulate the mean gradient of a group of micro-batches; returns this rank's mean loss, still on its device."""
    total = torch.zeros((), device=device)
    for i, batch in enumerate(group):
        x, y = (tensor.to(device, non_blocking=True) for tensor in batch)
        # Until the last micro-batch gradients only add up here; its backward averages the sums over the ranks.
        with ddp.no_sync() if i < len(group) - 1 else nullcontext():
            with autocast:
                loss = ddp(x, y) / len(group)  # the group's own length: an epoch's last one may be short
            loss.backward()
        total += loss.detach()
    return total


@torch.no_grad()
def validate(model, batches, device, autocast):
    """The mean loss over all ranks' shares. Takes the bare model: without gradients DDP has nothing to add."""
    model.eval()
    total = torch.zeros(2, device=device)  # sum of losses, number of windows
    for batch in batches:
        x, y = (tensor.to(device, non_blocking=True) for tensor in batch)
        with autocast:
            loss = model(x, y)
        total += torch.stack((loss, torch.ones_like(loss))) * len(x)  # not all batches are as long
    model.train()
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def save(path, state, random_state):
    """Rank 0 writes for all, under another name first: whoever is killed in here leaves the last checkpoint whole."""
    everyones = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(random_state, everyones)
    if dist.get_rank() == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            torch.save({**state, "random": everyones}, file)
            file.flush()
            os.fsync(file.fileno())  # or a power cut could leave the new name on an empty file
        partial.replace(path)


def load(path, model, optimizer, scheduler, random):
    # To the CPU first, or all ranks would load onto rank 0's GPU; weights_only, or a checkpoint could run code.
    state = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    if len(state["random"]) == dist.get_world_size():  # with another number of ranks no continuation is exact
        random.set_rng_state(state["random"][dist.get_rank()])
    return state["at"]


def train(args, device):
    rank, world, on_gpu = dist.get_rank(), dist.get_world_size(), device.type == "cuda"
    say = print if rank == 0 else lambda *_, **__: None
    random = torch.cuda if on_gpu else torch  # whose generator dropout draws from
    # bf16 has fp32's range and needs no GradScaler; where the hardware lacks it, as on most CPUs, fp32 is faster.
    bf16 = on_gpu and torch.cuda.is_bf16_supported(including_emulation=False)
    autocast = torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16)

    torch.manual_seed(1)  # the same weights everywhere ...
    model = GPT(Config()).to(device)
    torch.manual_seed(1000 + rank)  # ... and other dropout on every rank
    if args.compile:
        for block in model.blocks:  # equal blocks share one compilation, and parameters keep their names
            block.compile()
    ddp = DistributedDataParallel(model, device_ids=[device.index] if on_gpu else None)

    batches, held_out = loader("train", args.batch_size), loader("validation", args.batch_size)
    steps_per_epoch = -(-len(batches) // args.accumulate)  # rounded up: leftover micro-batches are a step too
    steps = min(args.steps, args.epochs * steps_per_epoch)
    optimizer = adamw(model, args.lr)
    scheduler = warmup_cosine(optimizer, warmup=min(20, steps // 5 + 1), steps=steps)

    path = args.out / "checkpoint.pt"
    at = {"step": 0, "epoch": 0, "seen": 0}  # seen: windows that all ranks together have taken from this epoch
    if args.resume and path.exists():
        at = load(path, model, optimizer, scheduler, random)
        say(f"resumed at step {at['step']}", flush=True)

    clock, tokens = time.perf_counter(), 0
    while at["step"] < steps:
        batches.sampler.set_epoch(at["epoch"])  # or every epoch would have the order of the first
        batches.sampler.start = at["seen"] // world
        micro_batches = iter(batches)
        while at["step"] < steps and (group := list(islice(micro_batches, args.accumulate))):
            loss = forward_backward(ddp, group, device, autocast)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            lr = scheduler.get_last_lr()[0]
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            at["step"] += 1
            at["seen"] += len(group) * args.batch_size * world
            tokens += len(group) * args.batch_size * world * Config.context

            if at["step"] % LOG_EVERY == 0 or at["step"] == 1:  # reading the loss waits for the GPU: not at every step
                dist.all_reduce(loss)
                rate = tokens / (time.perf_counter() - clock)
                mean = loss.item() / world
                say(f"step {at['step']}/{steps}  loss {mean:.4f}  lr {lr:.1e}  {rate:,.0f} tokens/s", flush=True)
                clock, tokens = time.perf_counter(), 0
            if at["step"] % SAVE_EVERY == 0 or at["step"] == steps:
                mean = validate(model, held_out, device, autocast)
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                save(path, {**state, "scheduler": scheduler.state_dict(), "at": at}, random.get_rng_state())
                say(f"step {at['step']}/{steps}  validation loss {mean:.4f}  saved {path}", flush=True)
                clock, tokens = time.perf_counter(), 0
        at["epoch"], at["seen"] = at["epoch"] + 1, 0


def main():
    args = parse_args()
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)  # with the device, NCCL connects now and not in step 1
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    train(args, device)
    # Not in a `finally`: after an exception some collective may wait for ranks that never come, and this would too.
    gc.collect()  # DDP and its hooks go before the group they use
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
