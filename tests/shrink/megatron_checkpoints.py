"""Write checkpoints as Megatron-LM does in torch's format: a folder a rank, each with its part of each tensor."""

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

import numpy
import torch
import torch.distributed.checkpoint as dcp

HIDDEN, VOCABULARY = 4, 8
#: name in a layer -> (shape, the dimension that tensor ranks share)
LAYER = {
    "input_layernorm.weight": ((HIDDEN,), None),
    "self_attention.linear_qkv.weight": ((3 * HIDDEN, HIDDEN), 0),
    "self_attention.linear_proj.weight": ((HIDDEN, HIDDEN), 1),
    "mlp.linear_fc1.weight": ((4 * HIDDEN, HIDDEN), 0),
    "mlp.linear_fc2.weight": ((HIDDEN, 4 * HIDDEN), 1),
}
EMBEDDING = ((VOCABULARY, HIDDEN), 0)


class AttnBackend(enum.Enum):
    auto = 5


AttnBackend.__module__, AttnBackend.__qualname__ = "megatron.core.transformer.enums", "AttnBackend"


@dataclass
class Job:
    """A job of `tensor` x `pipeline` ranks that writes a model of `layers` layers; `virtual` chunks a stage.

    `legacy`: the nested names of 2023 and before. `stage_layers`: layers of each chunk, in the order of the model,
    where they are not equal.
    """

    layers: int = 8
    tensor: int = 2
    pipeline: int = 1
    virtual: int = 1
    legacy: bool = False
    tied: bool = True
    stage_layers: list[int] | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    whole: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        names = {"embedding.word_embeddings.weight": EMBEDDING, "decoder.final_layernorm.weight": ((HIDDEN,), None)}
        if not self.tied:
            names["output_layer.weight"] = EMBEDDING
        names |= {f"decoder.layers.{i}.{name}": form for i in range(self.layers) for name, form in LAYER.items()}
        self.whole = {name: torch.randn(shape) for name, (shape, _) in names.items()}
        self.dims = {name: dim for name, (_, dim) in names.items()}

    def part(self, name: str, rank: int) -> Any:
        dim = self.dims[name]
        return self.whole[name] if dim is None else self.whole[name].chunk(self.tensor, dim)[rank].clone()

    def chunk(self, at: int, rank: int) -> dict[str, Any]:
        """The part of chunk `at`, in the order of the model, that a tensor rank holds, numbered from 0."""
        chunks = self.pipeline * self.virtual
        counts = self.stage_layers or [self.layers // chunks] * chunks
        first = sum(counts[:at])
        state = {}
        if at == 0:
            state["embedding.word_embeddings.weight"] = self.part("embedding.word_embeddings.weight", rank)
        for local in range(counts[at]):
            for name in LAYER:
                state[f"decoder.layers.{local}.{name}"] = self.part(f"decoder.layers.{first + local}.{name}", rank)
            state[f"decoder.layers.{local}.self_attention.core_attention._extra_state"] = None
        if at == chunks - 1:
            state["decoder.final_layernorm.weight"] = self.part("decoder.final_layernorm.weight", rank)
            if not self.tied:
                state["output_layer.weight"] = self.part("output_layer.weight", rank)
            elif at:
                state["output_layer.weight"] = self.part("embedding.word_embeddings.weight", rank)
        return nested(state) if self.legacy else state

    def write(self, root: Path, iteration: int = 100) -> Path:
        """The folder of the iteration, below a folder with the tracker."""
        folder = root / f"iter_{iteration:07d}"
        for rank in range(self.tensor):
            for stage in range(self.pipeline):
                name = f"mp_rank_{rank:02d}" + f"_{stage:03d}" * (self.pipeline > 1)
                (folder / name).mkdir(parents=True)
                with importable():
                    torch.save(self.file(rank, stage, iteration), folder / name / "model_optim_rng.pt")
        (root / "latest_checkpointed_iteration.txt").write_text(str(iteration))
        return folder

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
        common = {
            k: v for k, v in self.file(0, 0, iteration).items() if k in ("args", "checkpoint_version", "iteration")
        }
        folder.mkdir(parents=True)
        if embedded:
            state["common_state/shard_0_1"] = saved([common])
        else:
            (folder / "common.pt").write_bytes(saved(common).getvalue())
        dcp.save(state, checkpoint_id=str(folder), planner=_AsTheyAre(flatten_state_dict=False), no_dist=True)
        (folder / "metadata.json").write_text('{"sharded_backend": "torch_dist", "sharded_backend_version": 1}')
        (root / "latest_checkpointed_iteration.txt").write_text(str(iteration))
        return folder

    def file(self, rank: int, stage: int, iteration: int) -> dict[str, Any]:
        arguments = {
            "num_layers": self.layers, "encoder_num_layers": self.layers, "hidden_size": HIDDEN,
            "tensor_model_parallel_size": self.tensor, "pipeline_model_parallel_size": self.pipeline,
            "transformer_pipeline_model_parallel_size": self.pipeline, "params_dtype": torch.bfloat16,
            "virtual_pipeline_model_parallel_size": self.virtual if self.virtual > 1 else None,
            "untie_embeddings_and_output_weights": not self.tied, "attention_backend": AttnBackend.auto,
        }  # fmt: skip
        chunks = [self.chunk(v * self.pipeline + stage, rank) for v in range(self.virtual)]
        models = {"model": chunks[0]} if self.virtual == 1 else {f"model{v}": c for v, c in enumerate(chunks)}
        generators = {"random_rng_state": random.getstate(), "np_rng_state": numpy.random.get_state(),
                      "torch_rng_state": torch.get_rng_state(), "rng_tracker_states": {}}  # fmt: skip
        return {"args": argparse.Namespace(**arguments | self.arguments), "checkpoint_version": 3.0,
                "iteration": iteration, **models, "optimizer": {"optimizer": {"state": {0: torch.zeros(2)}}},
                "opt_param_scheduler": {"max_lr": 0.1}, "rng_state": [generators]}  # fmt: skip


def nested(state: dict[str, Any]) -> dict[str, Any]:
    """The names and dicts of Megatron before its core."""
    encoder = {n.removeprefix("decoder."): value for n, value in state.items() if n.startswith("decoder.")}
    model: dict[str, Any] = {"language_model": {"encoder": encoder}}
    if "embedding.word_embeddings.weight" in state:
        embeddings = {"word_embeddings": {"weight": state["embedding.word_embeddings.weight"]}}
        model["language_model"]["embedding"] = embeddings
    if "output_layer.weight" in state:
        model["word_embeddings_for_head"] = {"weight": state["output_layer.weight"]}
    return model


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
