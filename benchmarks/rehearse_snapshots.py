"""How far the peaks of simulated devices are from two memory snapshots of real GPUs.

    python benchmarks/rehearse_snapshots.py FOLDER      with torch26-forward.pickle and torch211-training.pickle

Two students of Stanford's CS336 have published snapshots of their transformers: a forward pass in mixed precision of
3.4 billion parameters (torch 2.6), and training steps of 0.42 billion in float32 (torch 2.11). Here are models like
theirs: the sizes of the tensors and the operations are those that the stacks in the snapshots name. They run on one
simulated device with the torch that is set up, and the peaks of allocated and reserved memory are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

GIB = 1 << 30
MOST_OFF = 0.07
NAMES = ("torch26-forward", "torch211-training")


def transformer(torch: Any, *, width: int, layers: int, heads: int, inner: int, length: int, mixed: bool) -> Any:
    """A model with the operations of one of the two; `mixed` is the one of the forward pass."""
    from torch import nn

    class Linear(nn.Module):
        def __init__(self, takes: int, gives: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(gives, takes))

        def forward(self, x: Any) -> Any:
            return torch.einsum("...i,oi->...o", x, self.weight)

    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(width))

        def forward(self, x: Any) -> Any:
            if mixed:
                scale = (x.norm(2, dim=-1, keepdim=True) ** 2 / width + 1e-5) ** 0.5
                return torch.einsum("...i,i->...i", x / scale, self.weight).to(torch.float32)
            x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
            return self.weight * x

    def softmax(x: Any) -> Any:
        exponents = torch.exp(x - x.max(dim=-1, keepdim=True)[0])
        return exponents / exponents.sum(dim=-1, keepdim=True)

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(Norm() for _ in range(2))
            self.query, self.key, self.value, self.out = (Linear(width, width) for _ in range(4))
            self.one, self.three, self.two = Linear(width, inner), Linear(width, inner), Linear(inner, width)

        def rotated(self, x: Any, angles: Any) -> Any:
            batch = x.shape[0] if mixed else 1
            cos, sin = (table.expand(batch, -1, -1)[:, None] + 0 for table in angles)
            even, odd = x[..., ::2], x[..., 1::2]
            turned = (cos * even - sin * odd, sin * even + cos * odd)
            return torch.stack(turned, -1).flatten(-2) if mixed else torch.cat(turned, -1)

        def attend(self, x: Any, angles: Any) -> Any:
            query, key, value = (
                part(x).unflatten(-1, (heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
            )
            query, key = self.rotated(query, angles), self.rotated(key, angles)
            scores = torch.einsum("...qd,...kd->...qk", query, key) / (width // heads) ** 0.5
            places = torch.arange(length, device=x.device)
            seen = places[:, None] >= places[None, :]
            if mixed:
                scores = scores.masked_fill(seen.expand(scores.shape) == 0, float("-inf"))
            else:
                scores = torch.where(seen, scores, float("-inf"))
            attended = torch.einsum("...qk,...kd->...qd", softmax(scores), value)
            return self.out(attended.transpose(1, 2).reshape(x.shape))

        def forward(self, x: Any, angles: Any) -> Any:
            x = x + self.attend(self.norms[0](x), angles)
            y = self.norms[1](x)
            if mixed:
                gate, up = self.one(y), self.three(y)
                return x + self.two(gate * torch.sigmoid(gate) * up)
            gate = self.one(y)
            return x + self.two(gate * torch.sigmoid(gate) * self.three(y))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Parameter(torch.zeros(10_000, width))
            self.layers = nn.ModuleList(Layer() for _ in range(layers))
            self.norm, self.head = Norm(), Linear(width, 10_000)
            table = torch.zeros(1, length, width // heads // 2)
            self.register_buffer("cos", table)
            self.register_buffer("sin", table.clone())

        def forward(self, x: Any) -> Any:
            x = self.tokens[x]
            for layer in self.layers:
                x = layer(x, (self.cos, self.sin))
            return self.head(self.norm(x))

    return Model().cuda()


def forward_pass(torch: Any) -> None:
    model = transformer(torch, width=2560, layers=32, heads=32, inner=10_240, length=512, mixed=True)
    tokens = torch.zeros(4, 512, dtype=torch.long, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        model(tokens)


def training(torch: Any) -> None:
    model = transformer(torch, width=1024, layers=24, heads=16, inner=4096, length=256, mixed=False)
    tokens = torch.zeros(4, 256, dtype=torch.long, device="cuda")
    states: dict[Any, tuple[Any, Any]] = {}
    for _ in range(3):
        for parameter in model.parameters():
            parameter.grad = None
        logits = model(tokens)
        shifted = logits - logits.max(dim=-1, keepdim=True)[0]
        logarithms = shifted - torch.log(torch.exp(shifted).sum(dim=-1, keepdim=True))
        (-logarithms).gather(-1, tokens[..., None]).mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                gradient = parameter.grad
                first, second = states.get(parameter) or (torch.zeros_like(parameter), torch.zeros_like(parameter))
                first = 0.9 * first + 0.1 * gradient
                second = 0.999 * second + 0.001 * gradient**2
                parameter.sub_(0.001 * first / (torch.sqrt(second) + 1e-8))
                states[parameter] = first, second


def simulated(name: str) -> dict[str, int]:
    from gpu_box.box import gpu_box
    from gpu_box.build import build

    with gpu_box(build(), devices=1, memory="80G", values=False) as box:
        words = [sys.executable, __file__, "--run", name]
        env = {**os.environ, **box.environment()}
        done = subprocess.run(words, env=env, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, int] = json.loads(done.stdout)
    return found


def run(name: str) -> None:
    import torch

    {"torch26-forward": forward_pass, "torch211-training": training}[name](torch)
    peaks = {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
    print(json.dumps(peaks))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--run", metavar="NAME", help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help="exit code 1 where an allocated peak is over 7 % off")
    options = parser.parse_args()
    if options.run:
        run(options.run)
        return 0
    if options.folder is None:
        parser.error("name the folder of the snapshots")
    from distdbg.collect.files.snapshot_files import read_snapshot_file

    worst = 0.0
    print("| snapshot | | real | simulated | off |\n|---|---|---:|---:|---:|")
    for name in NAMES:
        (answer,) = read_snapshot_file(options.folder / f"{name}.pickle", name)
        found = simulated(name)
        real = {"allocated": answer.peak.active, "reserved": max(answer.overview.reserved)}
        for what, size in real.items():
            off = found[what] / size - 1
            worst = max(worst, abs(off)) if what == "allocated" else worst
            print(f"| {name} | {what} | {size / GIB:.2f} GiB | {found[what] / GIB:.2f} GiB | {off:+.1%} |", flush=True)
    return int(options.check and worst > MOST_OFF)


if __name__ == "__main__":
    sys.exit(main())
