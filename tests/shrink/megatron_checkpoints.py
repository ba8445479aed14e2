"""Write distributed checkpoints as Megatron-LM does."""

from __future__ import annotations

import argparse
import contextlib
import enum
import io
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed.checkpoint as dcp

HIDDEN, VOCABULARY = 4, 8
#: name in a layer -> shape
LAYER = {
    "input_layernorm.weight": (HIDDEN,),
    "self_attention.linear_qkv.weight": (3 * HIDDEN, HIDDEN),
    "self_attention.linear_proj.weight": (HIDDEN, HIDDEN),
    "mlp.linear_fc1.weight": (4 * HIDDEN, HIDDEN),
    "mlp.linear_fc2.weight": (HIDDEN, 4 * HIDDEN),
}


class AttnBackend(enum.Enum):
    auto = 5


AttnBackend.__module__, AttnBackend.__qualname__ = "megatron.core.transformer.enums", "AttnBackend"


@dataclass
class Job:
    """A job of `pipeline` stages with `virtual` chunks each that writes a model of `layers` layers."""

    layers: int = 8
    pipeline: int = 1
    virtual: int = 1
    arguments: dict[str, Any] = field(default_factory=dict)
    whole: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        shapes = {"embedding.word_embeddings.weight": (VOCABULARY, HIDDEN), "decoder.final_layernorm.weight": (HIDDEN,)}
        shapes |= {f"decoder.layers.{i}.{name}": shape for i in range(self.layers) for name, shape in LAYER.items()}
        self.whole = {name: torch.randn(shape) for name, shape in shapes.items()}

    def write_distributed(self, root: Path, *, embedded: bool = False, iteration: int = 100) -> Path:
        """As `--ckpt-format torch_dist` does: all layers of a stack in one tensor, objects in parts, and what is in no
        rank's part in `common.pt`; since 2026 that is `embedded` among the parts."""
        folder = root / f"iter_{iteration:07d}"
        state: dict[str, Any] = {n: tensor for n, tensor in self.whole.items() if "layers" not in n}
        for name in LAYER:
            state[f"decoder.layers.{name}"] = torch.stack(
                [self.whole[f"decoder.layers.{i}.{name}"] for i in range(self.layers)]
            )
        state |= {f"optimizer.state.exp_avg.{name}": torch.zeros_like(tensor) for name, tensor in state.items()}
        for i in range(self.layers):
            state[f"decoder.layers.mlp.linear_fc1._extra_state/shard_{i}.0_{self.layers}.1"] = saved([f"of {i}"])
        state["rng_state/shard_0.0_1.1"] = saved([[{"random_rng_state": random.getstate()}]])
        common = self.common(iteration)
        folder.mkdir(parents=True)
        if embedded:
            state["common_state/shard_0_1"] = saved([common])
        else:
            (folder / "common.pt").write_bytes(saved(common).getvalue())
        dcp.save(state, checkpoint_id=str(folder), planner=_AsTheyAre(flatten_state_dict=False), no_dist=True)
        (folder / "metadata.json").write_text('{"sharded_backend": "torch_dist", "sharded_backend_version": 1}')
        (root / "latest_checkpointed_iteration.txt").write_text(str(iteration))
        return folder

    def common(self, iteration: int) -> dict[str, Any]:
        arguments = {
            "num_layers": self.layers, "encoder_num_layers": self.layers, "hidden_size": HIDDEN,
            "pipeline_model_parallel_size": self.pipeline, "transformer_pipeline_model_parallel_size": self.pipeline,
            "virtual_pipeline_model_parallel_size": self.virtual if self.virtual > 1 else None,
            "params_dtype": torch.bfloat16, "attention_backend": AttnBackend.auto,
        }  # fmt: skip
        args = argparse.Namespace(**arguments | self.arguments)
        return {"args": args, "checkpoint_version": 3.0, "iteration": iteration}


class _AsTheyAre(dcp.DefaultSavePlanner):
    """Objects come packed."""

    def transform_object(self, write_item, object):
        return object


class _AsBytes(dcp.DefaultLoadPlanner):
    def load_bytes(self, read_item, value):
        self.state_dict[read_item.dest_index.fqn] = value


def saved(value: Any) -> io.BytesIO:
    file = io.BytesIO()
    with importable():
        torch.save(value, file)
    file.seek(0)
    return file


def read_distributed(folder: Path) -> dict[str, Any]:
    """Every tensor, and every object as Megatron gets it."""
    entries = dcp.FileSystemReader(str(folder)).read_metadata().state_dict_metadata
    state = {
        n: torch.empty(e.size, dtype=e.properties.dtype) if hasattr(e, "size") else None for n, e in entries.items()
    }
    dcp.load(state, checkpoint_id=str(folder), planner=_AsBytes(False, False), no_dist=True)
    return {n: load(value) if isinstance(value, io.BytesIO) else value for n, value in state.items()}


@contextlib.contextmanager
def importable() -> Iterator[None]:
    """Megatron's enum can be found by its name: to be pickled, or by those who load a whole checkpoint."""
    modules = {name: ModuleType(name) for name in ("megatron", "megatron.core", "megatron.core.transformer",
                                                  "megatron.core.transformer.enums")}  # fmt: skip
    modules["megatron.core.transformer.enums"].AttnBackend = AttnBackend  # type: ignore[attr-defined]
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in modules:
            del sys.modules[name]


def load(path: Path | io.BytesIO) -> Any:
    """As Megatron does: with every class that the file names."""
    with importable():
        return torch.load(path, weights_only=False)
