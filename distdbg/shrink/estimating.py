"""The peak of one rank's memory before anything runs: one tracked step, sharded or replicated.

What is added to the tracked step, and why:
    DDP      a copy of the gradients: its buckets, which stand throughout (gradient_as_bucket_view=False)
    FSDP2    parameters, gradients and optimizer state by the number of ranks; beside them, whole, what belongs to no
             layer (it stays so from the forward to the end of the backward), two layers (the next one is gathered
             while one computes), and one layer's gradients twice, before and after their reduction
    grad     as FSDP2, and all parameters whole: they are not given back after the forward

Not in it, and said: CUDA's context and NCCL's buffers, fragmentation, what the script keeps by itself.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from distdbg.errors import EvidenceUnreadable
from distdbg.shrink.asking import ask
from distdbg.shrink.opening import open_source

Sharding = Literal["full", "grad", "none"]
#: What is said of an estimate: measured peaks were 5 % off at most (benchmarks/memory_estimate.py).
MARGIN = 0.10
_MOST_BATCH = 1 << 20
_SHARDED = ("parameters", "gradients", "optimizer state")


@dataclass(frozen=True)
class Wanted:
    """What is to be trained, and how. `optimizer` is adamw or sgd; `dtype` fp32, bf16 or amp."""

    batch: int = 1
    sequence: int = 1024
    dtype: str = "fp32"
    checkpointing: bool = False
    optimizer: str = "adamw"
    trust: bool = False


@dataclass(frozen=True)
class Estimate:
    """Bytes by kind at the peak of one rank, and in which part of the step that is."""

    kinds: Mapping[str, int]
    when: str

    @property
    def total(self) -> int:
        return sum(self.kinds.values())


def track(source: str, wanted: Wanted) -> dict[str, Any]:
    """One step, tracked by a child process that has torch. Raises what opening a config and building a model raise."""
    text = open_source(source).small("config.json")
    if text is None:
        raise EvidenceUnreadable(f"{source} holds no config.json", "Name a model's folder, or its config.json.")
    with tempfile.TemporaryDirectory(prefix="distdbg-estimate-") as folder:
        Path(folder, "config.json").write_bytes(text)
        found = ask(
            "memory", folder=folder, trust=wanted.trust, batch=wanted.batch, sequence=wanted.sequence,
            dtype=wanted.dtype, checkpointing=wanted.checkpointing, optimizer=wanted.optimizer,
        )  # fmt: skip
    return dict(found)


def estimate(step: Mapping[str, Any], ranks: int, fsdp: Sharding) -> Estimate:
    """`step` as `track` gives it. Pure."""
    parts = {name: _of_one_rank(step, name, ranks, fsdp) for name in ("forward and backward", "optimizer")}
    when = max(parts, key=lambda name: sum(parts[name].values()))
    return Estimate(parts[when], when)


def largest_batch(
    source: str, wanted: Wanted, ranks: int, fsdp: Sharding, *, room: int, say: Callable[[str], None]
) -> int:
    """The most sequences whose estimate, with its margin, is within `room` bytes; 0 where one is too much.

    What does not grow with the batch is told from what does by two tracked steps; what comes of it is tracked, too.
    """

    def needs(batch: int) -> int:
        say(f"computing a step of {batch} sequences")
        return int(estimate(track(source, replace(wanted, batch=batch)), ranks, fsdp).total * (1 + MARGIN))

    few, many = needs(1), needs(3)
    if few > room:
        return 0
    each = max(1, (many - few) // 2)
    batch = min(1 + (room - few) // each, _MOST_BATCH)
    while batch > 1 and needs(batch) > room:  # a part of a step that grows otherwise
        batch -= max(1, batch // 16)
    return batch


def _of_one_rank(step: Mapping[str, Any], part: str, ranks: int, fsdp: Sharding) -> dict[str, int]:
    kinds = {name: int(size) for name, size in step[part].items()}
    if ranks == 1 and fsdp == "none":
        return kinds
    if fsdp == "none":
        return {**kinds, "buckets of DDP": int(step["gradients"])}
    whole, layers = int(step["parameters"]), [int(size) for size in step["layers"]] or [0]
    sharded = {name: -(-kinds[name] // ranks) for name in _SHARDED}
    if part == "optimizer":
        return {**kinds, **sharded}
    gathered = whole if fsdp == "grad" else min(whole, int(step["outside"]) + 2 * max(layers))
    return {**kinds, **sharded, "gathered parameters": gathered, "gradients before reduction": 2 * max(layers)}
