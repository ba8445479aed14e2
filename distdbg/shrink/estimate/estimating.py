"""Estimate the peak of one rank's memory before anything runs: one tracked step, sharded or replicated.

What is added to the tracked step, and why:
    DDP      a copy of the gradients: its buckets, which stand throughout (gradient_as_bucket_view=False)
    FSDP2    parameters, gradients and optimizer state by the number of ranks; beside them, whole, what belongs to no
             layer (it stays so from the forward to the end of the backward, its gradients, too), and the most of:
             - while a layer is computed, two layers (the next one is gathered meanwhile) and one layer's gradients
               twice, before and after their reduction
             - while none is, as for the loss, one layer: the backward's first, which is gathered meanwhile
             - at the end of the backward, where no activations stand any more, the gradients of what is in no layer
               beside these parameters, which are given back before the reduction takes a copy of the gradients
    grad     as FSDP2, and all parameters whole: they are not given back after the forward
    always   cuBLAS' workspaces, which torch's allocator holds from the first matrix product of each thread on

Not in it, and said: CUDA's context and NCCL's buffers, fragmentation, what the script keeps by itself.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from distdbg.shrink.asking import ask
from distdbg.shrink.checkpoint.config_file import code_and_config, refuse_untrusted
from distdbg.shrink.checkpoint.opening import open_source

Sharding = Literal["full", "grad", "none"]
#: What is said of an estimate: measured peaks were 8 % off at most (benchmarks/memory_estimate.py, on CPU).
MARGIN = 0.10
#: `train.py:make`, `package.module:make`; no model of the hub has a colon in its name
_SCRIPT = re.compile(r"[^:]+:[A-Za-z_]\w*")
#: Bytes: 32 MiB each on Hopper and Blackwell (8.1 MiB on older GPUs), for the thread of the forward and autograd's own.
CUBLAS = 2 * 32 << 20
WORKSPACES = "workspaces of cuBLAS"
_GATHERED, _WHOLE_GRADIENTS = "gathered parameters", "gradients before reduction"
_SHARDED = ("parameters", "gradients", "optimizer state")


@dataclass(frozen=True)
class EstimateRequest:
    """What is to be trained, and how. `optimizer` is adamw or sgd; `dtype` fp32, bf16 or amp; no `layers`: all."""

    batch: int = 1
    sequence: int = 1024
    layers: int | None = None
    dtype: str = "fp32"
    checkpointing: bool = False
    optimizer: str = "adamw"
    trust: bool = False


@dataclass(frozen=True)
class Made:
    """A model, and what computes its loss on a batch that stands already; `unheard`: what else it takes."""

    model: Any
    loss: Callable[[], Any]
    unheard: tuple[str, ...] = ()


@dataclass(frozen=True)
class Estimate:
    """Bytes by kind at the peak of one rank, and in which part of the step that is."""

    kinds: Mapping[str, int]
    when: str
    #: what else the model takes (image, video, audio): the step was of tokens alone
    unheard: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        return sum(self.kinds.values())


def track(source: str, wanted: EstimateRequest) -> dict[str, Any]:
    """One step, tracked by a child process that has torch. Raises what opening a config and building a model raise."""
    return dict(ask_child(source, wanted)["step"])


def ask_child(source: str, wanted: EstimateRequest, **more: Any) -> dict[str, Any]:
    """What shrink.tracking answers; `more` is what it is asked beside the step. Raises as `track`."""
    if _SCRIPT.fullmatch(source) and not Path(source).exists():
        return dict(ask("memory", script=source, wanted=asdict(wanted), **more))
    opened = open_source(source)
    refuse_untrusted(opened, trust=wanted.trust)
    with tempfile.TemporaryDirectory(prefix="distdbg-estimate-") as folder:
        code_and_config(opened, Path(folder), trust=wanted.trust)
        return dict(ask("memory", folder=folder, wanted=asdict(wanted), **more))


def estimate(step: Mapping[str, Any], ranks: int, fsdp: Sharding) -> Estimate:
    """`step` as `track` gives it. Pure."""
    parts = {name: _of_one_rank(step, name, ranks, fsdp) for name in ("forward and backward", "optimizer")}
    when = max(parts, key=lambda name: sum(parts[name].values()))
    return Estimate({**parts[when], WORKSPACES: CUBLAS}, when, tuple(step.get("unheard", ())))


def _of_one_rank(step: Mapping[str, Any], part: str, ranks: int, fsdp: Sharding) -> dict[str, int]:
    kinds = {name: int(size) for name, size in step[part].items()}
    if ranks == 1 and fsdp == "none":
        return kinds
    if fsdp == "none":
        return {**kinds, "buckets of DDP": int(step["gradients"])}
    if part == "optimizer":
        return {**kinds, **{name: -(-kinds[name] // ranks) for name in _SHARDED}}
    return max(_moments(step, ranks, fsdp), key=lambda found: sum(found.values()))


def _moments(step: Mapping[str, Any], ranks: int, fsdp: Sharding) -> Iterator[dict[str, int]]:
    """The memory under FSDP2 while a layer is computed, while none is (the loss), and at the backward's end."""
    whole, layers, outside = int(step["parameters"]), [int(n) for n in step["layers"]] or [0], int(step["outside"])
    largest = max(layers)
    for name, gathered, reduced in (("within layers", 2, 2), ("outside layers", 1, 0)):
        kinds = {kind: int(size) for kind, size in step[name].items()}
        own = min(kinds["gradients"], outside)  # reduced at the end of the backward only
        kinds["gradients"] -= own
        yield {
            **kinds,
            **{kind: -(-kinds[kind] // ranks) for kind in _SHARDED},
            _GATHERED: whole if fsdp == "grad" else min(whole, outside + gathered * largest),
            _WHOLE_GRADIENTS: own + reduced * largest,
        }
    kinds = {kind: int(size) for kind, size in step["forward and backward"].items()}
    sharded = {kind: -(-kinds[kind] // ranks) for kind in _SHARDED}
    yield {
        "buffers": kinds.get("buffers", 0),
        **sharded,
        "gradients": -(-max(0, int(step["gradients"]) - outside) // ranks),
        _GATHERED: outside,
        _WHOLE_GRADIENTS: outside + largest,
    }
