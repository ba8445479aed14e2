import torch
import torch.distributed as dist


def step(model, x):
    failed = torch.zeros(1)
    try:
        model(x).mean().backward()
    except RuntimeError:
        failed += 1
    finally:
        print("done")
    dist.all_reduce(failed)
    if failed.item():
        raise RuntimeError("a rank failed")


def close():
    try:
        dist.barrier()
    except Exception:
        dist.destroy_process_group()
