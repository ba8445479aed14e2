"""What a rehearsal of many ranks costs: time, and memory of the host for each rank that runs.

    python benchmarks/rehearse_scale.py                 64 and 1,024 ranks, one rank for each role
    python benchmarks/rehearse_scale.py --nodes 8       as many nodes of eight GPUs

A model of the shape of Llama 3 8B (32 layers, 4,096 wide, batches of 8,192 tokens) on a mesh of nodes x 8: HSDP, which
shards inside each node and replicates across them. Roles: the first and the last rank of the first and the last node.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GIB = 1 << 30
GPUS = 8
SCRIPT = """
import os
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
mesh = init_device_mesh("cuda", (dist.get_world_size() // 8, 8), mesh_dim_names=("replicate", "shard"))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)


class Layer(torch.nn.Module):
    def __init__(self, width=4096, inner=14336):
        super().__init__()
        self.query, self.out = torch.nn.Linear(width, width, bias=False), torch.nn.Linear(width, width, bias=False)
        self.key, self.value = (torch.nn.Linear(width, width // 4, bias=False) for _ in range(2))
        self.gate, self.up = torch.nn.Linear(width, inner, bias=False), torch.nn.Linear(width, inner, bias=False)
        self.down, self.norm = torch.nn.Linear(inner, width, bias=False), torch.nn.RMSNorm(width)

    def forward(self, x):
        y = self.norm(x)
        query, key, value = (
            part.unflatten(-1, (-1, 128)).transpose(1, 2) for part in (self.query(y), self.key(y), self.value(y))
        )
        attended = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x))


with torch.device("meta"):
    embedding, head = torch.nn.Embedding(128256, 4096), torch.nn.Linear(4096, 128256, bias=False)
    model = torch.nn.Sequential(embedding, *(Layer() for _ in range(32)), head)
for layer in model:
    fully_shard(layer, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
model.to_empty(device="cuda")
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    tokens = torch.zeros(1, 8192, dtype=torch.long, device="cuda")
    logits = model(tokens)
    torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="*", default=[8, 128])
    options = parser.parse_args()
    print(
        "| ranks | run | peak of a device | memory of the host a rank | time |\n|---:|---|---:|---:|---:|", flush=True
    )
    for nodes in options.nodes:
        with tempfile.TemporaryDirectory(prefix="rehearse-scale-") as folder:
            Path(folder, "train.py").write_text(SCRIPT)
            words = [
                "--json",
                "--nodes",
                str(nodes),
                "--gpus",
                str(GPUS),
                "--ranks",
                "representatives",
                "--run-dir",
                "run",
            ]
            begin = time.monotonic()
            done = subprocess.run([sys.executable, "-m", "distdbg", "rehearse", *words, "train.py"], cwd=folder,
                                  capture_output=True, text=True, check=False)  # fmt: skip
            seconds = time.monotonic() - begin
            if done.returncode:
                print(done.stderr[-4000:], file=sys.stderr)
                return 1
            found = json.loads(done.stdout)["rehearsal"]
            exits = [json.loads(path.read_text()) for path in Path(folder, "run").glob("attempts/1/ranks/*/exit.json")]
        peak = max(one["allocated"] for one in found["peaks"]) / GIB
        memory = max(one["peak_rss"] for one in exits) / GIB
        ranks = ", ".join(map(str, found["ranks"]))
        print(f"| {nodes * GPUS:,} | {ranks} | {peak:.1f} GiB | {memory:.2f} GiB | {seconds:.0f} s |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
