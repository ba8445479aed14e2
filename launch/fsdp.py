"""Train a small GPT with FSDP2 (fully_shard), on CPUs with gloo or GPUs with NCCL, on one rank or a thousand.

    torchrun --nproc-per-node 2 fsdp.py
    distdbg launch --nodes 2 fsdp.py --epochs 3 --resume

Every rank keeps a shard of each weight, its gradient and its optimizer state, and gathers a block's weights only
while that block computes. Checkpoints are sharded too, and can be resumed on another number of ranks.
"""

import argparse
import gc
import os
import shutil
import time
from itertools import islice
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from gpt import GPT, Config, adamw, loader, warmup_cosine
from torch.distributed.checkpoint import state_dict as sharded
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

LOG_EVERY, SAVE_EVERY = 10, 50  # optimizer steps


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10**9, help="stop after so many optimizer steps, epochs or not")
    parser.add_argument("--batch-size", type=int, default=16, help="windows of text in a micro-batch of one rank")
    parser.add_argument("--accumulate", type=int, default=2, help="micro-batches in an optimizer step")
    parser.add_argument("--lr", type=float, default=4e-3, help="the peak, after the warm-up")
    parser.add_argument("--out", type=Path, default=Path("checkpoints/fsdp"), help="a folder that all nodes share")
    parser.add_argument("--resume", action="store_true", help="go on from the latest checkpoint in --out, if any")
    parser.add_argument("--compile", action="store_true", help="compile the blocks with torch.compile")
    return parser.parse_args()


def sharded_gpt(device, compiled):
    torch.manual_seed(1)  # the same weights everywhere, of which each rank keeps its shards
    model = GPT(Config()).to(device)  # what no single GPU can hold is built on the meta device and filled when sharded
    # bf16 for what is gathered and computed, fp32 for what is kept and summed. Where the hardware lacks it: fp32.
    bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if bf16 else MixedPrecisionPolicy()
    mesh = init_device_mesh(device.type, (dist.get_world_size(),), mesh_dim_names=("shard",))
    for block in model.blocks:
        if compiled:
            # The forward alone: hooks around it (FSDP gathers in them) stay eager. Equal blocks share one compilation.
            block.forward = torch.compile(block.forward)
        fully_shard(block, mesh=mesh, mp_policy=policy)  # block by block: one unit would gather everything at once
    return fully_shard(model, mesh=mesh, mp_policy=policy)  # and the root: what no block holds


def forward_backward(model, group, device):
    """Accumulate the mean gradient of a group of micro-batches; returns this rank's mean loss, still on its device."""
    total = torch.zeros((), device=device)
    for i, batch in enumerate(group):
        x, y = (tensor.to(device, non_blocking=True) for tensor in batch)
        # Until the last micro-batch gradients add up unsharded, which saves the reduce-scatters and costs memory.
        model.set_requires_gradient_sync(i == len(group) - 1)
        loss = model(x, y) / len(group)  # the group's own length: an epoch's last one may be short
        loss.backward()
        total += loss.detach()
    return total


@torch.no_grad()
def validate(model, batches, device):
    """The mean loss over all ranks' shares."""
    model.eval()
    total = torch.zeros(2, device=device)  # sum of losses, number of windows
    for batch in batches:
        x, y = (tensor.to(device, non_blocking=True) for tensor in batch)
        loss = model(x, y)
        total += torch.stack((loss, torch.ones_like(loss))) * len(x)  # not all batches are as long
    model.train()
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def save(out, model, optimizer, scheduler, *, at, random):
    """All ranks write their shards into one folder, which rank 0 renames when the last is done; `latest` names it."""
    partial, final = out / "partial", out / f"step-{at['step']:06d}"
    if dist.get_rank() == 0:
        shutil.rmtree(partial, ignore_errors=True)  # of a save that was killed
        partial.mkdir(parents=True)
    dist.barrier()
    weights, moments = sharded.get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments, "scheduler": scheduler.state_dict(), "at": at}
    dcp.save(state, checkpoint_id=partial)
    torch.save(random.get_rng_state(), partial / f"random-{dist.get_rank()}-of-{dist.get_world_size()}.pt")
    dist.barrier()
    if dist.get_rank() == 0:
        if final.exists():  # of an earlier run that was not resumed
            (out / "latest").unlink(missing_ok=True)
            shutil.rmtree(final)
        partial.rename(final)
        (out / "latest.partial").write_text(final.name)
        (out / "latest.partial").replace(out / "latest")
        for other in set(out.glob("step-*")) - {final}:
            shutil.rmtree(other)
    return final


def load(path, model, optimizer, scheduler, *, at, random):
    """The inverse, into the shards that this run has, whatever number of ranks wrote the folder; returns `at`."""
    weights, moments = sharded.get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments, "scheduler": scheduler.state_dict(), "at": dict(at)}
    dcp.load(state, checkpoint_id=path)
    sharded.set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    random_state = path / f"random-{dist.get_rank()}-of-{dist.get_world_size()}.pt"
    if random_state.exists():  # with another number of ranks no continuation is exact
        random.set_rng_state(torch.load(random_state, weights_only=True))
    return state["at"]


def export(path, model):
    """The whole model in one file, gathered once, on rank 0's CPU alone: `GPT(Config()).load_state_dict` takes it."""
    whole = sharded.StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = sharded.get_model_state_dict(model, options=whole)
    if dist.get_rank() == 0:
        torch.save(weights, path.with_suffix(".partial"))
        path.with_suffix(".partial").replace(path)


def train(args, device):
    rank, world = dist.get_rank(), dist.get_world_size()
    say = print if rank == 0 else lambda *_, **__: None
    random = torch.cuda if device.type == "cuda" else torch  # whose generator dropout draws from
    model = sharded_gpt(device, args.compile)
    torch.manual_seed(1000 + rank)  # other dropout on every rank

    batches, held_out = loader("train", args.batch_size), loader("validation", args.batch_size)
    steps_per_epoch = -(-len(batches) // args.accumulate)  # rounded up: leftover micro-batches are a step too
    steps = min(args.steps, args.epochs * steps_per_epoch)
    optimizer = adamw(model, args.lr)  # after sharding: these parameters are the ones to optimize
    scheduler = warmup_cosine(optimizer, warmup=min(20, steps // 5 + 1), steps=steps)

    at = {"step": 0, "epoch": 0, "seen": 0}  # seen: windows that all ranks together have taken from this epoch
    if args.resume and (args.out / "latest").exists():
        latest = args.out / (args.out / "latest").read_text()
        at = load(latest, model, optimizer, scheduler, at=at, random=random)
        say(f"resumed at step {at['step']}", flush=True)

    clock, tokens = time.perf_counter(), 0
    while at["step"] < steps:
        batches.sampler.set_epoch(at["epoch"])  # or every epoch would have the order of the first
        batches.sampler.start = at["seen"] // world
        micro_batches = iter(batches)
        while at["step"] < steps and (group := list(islice(micro_batches, args.accumulate))):
            loss = forward_backward(model, group, device)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # of DTensors: the norm over all shards
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
                mean = validate(model, held_out, device)
                saved = save(args.out, model, optimizer, scheduler, at=at, random=random)
                say(f"step {at['step']}/{steps}  validation loss {mean:.4f}  saved {saved}", flush=True)
                clock, tokens = time.perf_counter(), 0
        at["epoch"], at["seen"] = at["epoch"] + 1, 0
    export(args.out / "model.pt", model)


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
    gc.collect()  # the model and its hooks go before the group they use
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
