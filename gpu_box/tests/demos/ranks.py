"""What ranks see of NCCL: every collective with its values, transfers, groups.

With GPU_BOX_SHADOW=1 what looks at computed values: gathered objects, and FSDP2's training.

torchrun --nproc-per-node 4 ranks.py [--eager]      eager: communicators are made at init_process_group
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
torch.cuda.set_device(local)
device = torch.device("cuda", local)


def full(value, count=1000, dtype=torch.float32):
    return torch.full((count,), value, dtype=dtype, device=device)


def same(tensor, value):
    assert (tensor.cpu().to(torch.float32) == value).all(), (rank, tensor.cpu()[:8], value)


def collectives():
    total = sum(range(1, world + 1))
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64, torch.uint8):
        mine = full(rank + 1, dtype=dtype)
        dist.all_reduce(mine)
        same(mine, total)
    for op, value in ((dist.ReduceOp.MAX, world), (dist.ReduceOp.MIN, 1), (dist.ReduceOp.AVG, total / world)):
        mine = full(float(rank + 1))
        dist.all_reduce(mine, op)
        same(mine, value)
    large = full(float(rank + 1), 3_000_001)
    dist.all_reduce(large)
    same(large, total)
    sent = full(float(rank), 10)
    dist.broadcast(sent, src=1)
    same(sent, 1)
    root = full(float(rank + 1), 10)
    dist.reduce(root, dst=world - 1)
    same(root, total) if rank == world - 1 else None
    gathered = torch.empty(world * 5, device=device)
    dist.all_gather_into_tensor(gathered, full(float(rank), 5))
    assert gathered.tolist() == [float(r) for r in range(world) for _ in range(5)]
    parts = torch.tensor([float(r + rank) for r in range(world) for _ in range(5)]).to(device)
    mine = torch.empty(5, device=device)
    dist.reduce_scatter_tensor(mine, parts)
    same(mine, sum(rank + r for r in range(world)))
    got = torch.empty(world * 2, device=device)
    sent = torch.tensor([float(10 * rank + r) for r in range(world) for _ in range(2)]).to(device)
    dist.all_to_all_single(got, sent)
    assert got.tolist() == [float(10 * r + rank) for r in range(world) for _ in range(2)]
    dist.barrier()


def transfers():
    after, before = (rank + 1) % world, (rank - 1) % world
    got = torch.empty(100_000, device=device)
    moves = [dist.P2POp(dist.isend, full(float(rank), 100_000), after), dist.P2POp(dist.irecv, got, before)]
    for work in dist.batch_isend_irecv(moves):
        work.wait()
    same(got, before)
    if rank == 0:
        dist.send(full(5.0), 1)
    elif rank == 1:
        got = torch.empty(1000, device=device)
        dist.recv(got, 0)
        same(got, 5)


def groups():
    halves = [dist.new_group(ranks) for ranks in (list(range(world // 2)), list(range(world // 2, world)))]
    mine = full(float(rank))
    dist.all_reduce(mine, group=halves[rank >= world // 2])
    same(mine, sum(r for r in range(world) if (r >= world // 2) == (rank >= world // 2)))
    mesh = dist.init_device_mesh("cuda", (world // 2, 2), mesh_dim_names=("dp", "tp"))
    mine = full(1.0)
    dist.all_reduce(mine, group=mesh["tp"].get_group())
    same(mine, 2)


def a_graph_replays_a_collective():
    mine = full(1.0)
    graph = torch.cuda.CUDAGraph()
    dist.all_reduce(mine.clone())  # the communicator is made outside the capture
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        dist.all_reduce(mine)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    same(mine, world**3)


def objects_are_gathered():  # torch compares their sizes on the device
    objects = [None] * world
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(world)]


def fsdp_trains_as_the_cpu_does():
    def losses(where, shard):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4)).to(where)
        if shard:
            for layer in model:
                fully_shard(layer)
            fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
        inputs, labels = torch.randn(8, 16).to(where), torch.randint(0, 4, (8,)).to(where)
        found = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    got, wanted = losses(device, True), losses("cpu", False)
    assert max(abs(a - b) for a, b in zip(got, wanted, strict=True)) < 1e-6, (got, wanted)


if __name__ == "__main__":
    dist.init_process_group("nccl", device_id=device if "--eager" in sys.argv else None)
    shadow = os.environ["GPU_BOX_SHADOW"] == "1"
    parts = [collectives, transfers, groups, a_graph_replays_a_collective]
    for part in [objects_are_gathered, fsdp_trains_as_the_cpu_does] if shadow else parts:
        part()
        torch.cuda.synchronize()
        print(f"rank {rank} {part.__name__}\n", end="", flush=True)
    dist.destroy_process_group()
