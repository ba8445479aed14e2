"""Four ranks that are processes, of 64: the others do as the lowest real member of each group does.

With the argument `eager` groups are splits of the default group; without it torch makes a communicator for each send,
and groups have gloo, too.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

REAL = tuple(map(int, os.environ["GPU_BOX_REAL"].split(",")))


def main() -> None:
    rank = REAL[int(os.environ["RANK"])]
    os.environ.update(RANK=str(rank), WORLD_SIZE="64", LOCAL_RANK=str(rank % 8), GROUP_RANK=str(rank // 8))
    torch.cuda.set_device(rank % 8)
    device = torch.device("cuda", rank % 8)
    eager = "eager" in sys.argv
    dist.init_process_group("nccl" if eager else "cpu:gloo,cuda:nccl", **({"device_id": device} if eager else {}))
    mesh = init_device_mesh("cuda", (8, 8), mesh_dim_names=("data", "tensor"))
    model = torch.nn.Linear(1024, 1024, bias=False).cuda()
    fully_shard(model, mesh=mesh["data"])
    model(torch.randn(8, 1024, device=device)).sum().backward()
    assert tuple(model.weight.to_local().shape) == (128, 1024)
    tensor, first = mesh["tensor"].get_group(), rank // 8 * 8
    others = [first if first + n not in REAL else first + n for n in range(8)]
    sums = torch.full((4,), float(rank), device=device)
    dist.all_reduce(sums, group=tensor)
    assert sums.tolist() == [sum(others)] * 4, sums
    from_one_that_is_not_there = torch.full((1,), float(rank), device=device)
    dist.broadcast(from_one_that_is_not_there, src=3)
    assert from_one_that_is_not_there.item() == 0
    objects: list[object] = [None] * 8
    dist.all_gather_object(objects, rank, group=tensor)
    assert objects == others, objects
    gathered: list[object] | None = [None] * 8 if rank == first else None
    dist.gather_object(rank, gathered, dst=first, group=tensor)
    assert gathered == (others if rank == first else None), gathered
    scattered: list[object] = [None]
    dist.scatter_object_list(scattered, [f"to {n}" for n in range(8)] if rank == first else None, first, group=tensor)
    assert scattered == [f"to {rank - first}"], scattered
    if not eager:
        on_host = torch.full((1,), float(rank))
        gathered_there = [torch.zeros(1) for _ in range(8)]
        dist.all_gather(gathered_there, on_host, group=tensor)
        assert [int(one) for one in gathered_there] == others, gathered_there
        dist.broadcast(on_host, src=56)
        assert on_host.item() == 56
        dist.barrier(group=dist.new_group(backend="gloo"))
    if rank == 63:
        dist.send(sums, 62)
        dist.recv(sums, 1)
    if rank == 0:
        dist.send(sums, 1)
    received = torch.full((1,), 5.0, device=device)
    if rank == 7:
        dist.send(received, 56)
    if rank == 56:
        dist.recv(received.zero_(), 7)
        assert received.item() == 5
    torch.cuda.synchronize()
    print(f"rank {rank} ended\n", end="", flush=True)
    dist.destroy_process_group()


main()
