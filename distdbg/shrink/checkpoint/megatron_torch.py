"""The task `megatron`: reduce a checkpoint that Megatron wrote in torch's format, a file a rank, in the same form."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distdbg.errors import EvidenceUnreadable, Refused
from distdbg.shrink.checkpoint.megatron_arguments import followed, stages_of
from distdbg.shrink.checkpoint.megatron_stages import (
    Offsets,
    Shards,
    Stages,
    dealt,
    offsets_of,
    shards_of,
    stack_of,
)
from distdbg.shrink.checkpoint.pickled import load_safely, save
from distdbg.shrink.checkpoint.plain_names import PlainOrder, plain_stacks
from distdbg.shrink.checkpoint.plain_plan import Keys, put, said_of, same_bits, split_name
from distdbg.shrink.checkpoint.staging import refuse_a_full_disk

_REMEDY = "Save it again without what the loader refuses, or as a distributed checkpoint."
#: the head where it is the embedding: only a last stage that is not the first has a copy
_TIED = ("output_layer.weight", "word_embeddings_for_head.weight")
_EMBEDDING = ".word_embeddings.weight"
#: of a distributed optimizer, beside the weights
_OPTIMIZER = "optimizer"
_OPTIMIZERS = ("distrib_optim.pt", "optim.pt")
#: its content differs from layer to layer, and says nothing of the layer's kind
_STATE = "_extra_state"


@dataclass(frozen=True)
class _Leaf:
    """A value of a chunk, no mapping. `file`: the folder it came from."""

    keys: Keys
    value: Any
    file: str
    name: str


#: name -> leaf, without the key of the chunk
_Chunk = dict[str, _Leaf]


def run(task: dict[str, Any]) -> dict[str, Any]:
    """`task`: source (the folder of an iteration), folder, to (its later name), order. The answer has what shrink.json
    says of it."""
    order = PlainOrder(**task["order"])
    source, folder, to = (Path(task[name]) for name in ("source", "folder", "to"))
    shards, before = _layout(source)
    ranks = sorted({(tensor, expert) for tensor, _, expert in shards})
    job = _Job(shards, before, order, len({expert for _, expert in ranks}) > 1)
    for tensor, expert in ranks:
        job.write(tensor, expert, folder, to, of=len(ranks))
    return job.answer()


def _layout(source: Path) -> tuple[Shards, Stages]:
    shards = shards_of(source, stages_first=True)
    whole = load_safely(shards[0, 0, 0], _REMEDY)
    pipeline, experts = stages_of(_arguments(whole))
    if pipeline == 1 and experts is not None and experts > 1:
        shards = shards_of(source, stages_first=False)
    stages = 1 + max(stage for _, stage, _ in shards)
    if pipeline is not None and pipeline != stages:
        raise EvidenceUnreadable(f"{source} was written by {pipeline} pipeline stages, and has the shards of {stages}",
                                 "Fetch the checkpoint again.")  # fmt: skip
    chunks = sum(1 for key in whole if isinstance(key, str) and key.removeprefix("model").isdecimal())
    if not chunks and not isinstance(whole.get("model"), Mapping):
        raise EvidenceUnreadable(f"{shards[0, 0, 0]} has no 'model'", "Name a checkpoint that Megatron wrote.")
    return shards, Stages(stages, max(chunks, 1))


def _arguments(whole: Mapping[Any, Any]) -> dict[str, Any]:
    found = whole.get("args")
    return vars(found) if isinstance(found, argparse.Namespace) else {}


class _Job:
    """The shards of one pair of a tensor and an expert rank after another; the first decides what is kept."""

    def __init__(self, shards: Shards, before: Stages, order: PlainOrder, experts: bool) -> None:
        self.shards, self.before, self.order, self.experts = shards, before, order, experts
        self.after = before
        self.stacks: list[dict[str, Any]] = []
        self.origins: dict[str, str] = {}
        self.dropped: list[str] = []
        self.warnings: list[str] = []
        self.differ: list[str] = []
        self.names: list[set[str]] = []
        self.read = 0

    def answer(self) -> dict[str, Any]:
        left_out = sorted({path.name for shard in self.shards.values() for path in shard.parent.iterdir()
                           if path.name in _OPTIMIZERS or path.name.startswith("layer_wise_optimizer")})  # fmt: skip
        if left_out or _OPTIMIZER in self.dropped:
            self.warnings.append("the optimizer's states are left out: load it with --no-load-optim or --finetune")
        return {"stacks": self.stacks, "origins": self.origins, "dropped": [*self.dropped, *left_out], "sliced": {},
                "warnings": self.warnings, "weights": said_of(self.differ), "bytes_read": self.read}  # fmt: skip

    def write(self, tensor: int, expert: int, folder: Path, to: Path, of: int) -> None:
        """`of`: how many such pairs there are."""
        paths = [self.shards[tensor, stage, expert] for stage in range(self.before.pipeline)]
        files = [load_safely(path, _REMEDY) for path in paths]
        chunks = [_leaves_of(files[stage].get(self.before.key(chunk)), paths[stage].parent.name)
                  for stage, chunk in self.before.chunks]  # fmt: skip
        offsets = offsets_of(chunks, self.order.pattern)
        first = not self.stacks
        if first:
            self._decide(chunks, offsets, _arguments(files[0]), paths[0])
            self.names = [set(chunk) for chunk in chunks]
        elif [set(chunk) for chunk in chunks] != self.names:
            raise EvidenceUnreadable(f"{paths[0].parent} has other tensors than mp_rank_00", "Save it again.")
        small = self._dealt(chunks, offsets, _arguments(files[0]))
        if first:
            size = sum(_size(leaf.value) for chunk in small for leaf in chunk.values())
            refuse_a_full_disk(to, size * of)
            self._note(chunks, small)
            self.dropped += [_OPTIMIZER] * (_OPTIMIZER in files[0])
        for stage in range(self.after.pipeline):
            name = self.after.folder(tensor, stage, expert if self.experts else None)
            (folder / name).mkdir()
            self._write_file(folder / name / paths[stage].name, stage, files[stage], small)

    def _write_file(self, path: Path, stage: int, whole: Mapping[Any, Any], small: Sequence[_Chunk]) -> None:
        import torch

        written: dict[Any, Any] = {}
        models = [self.before.key(chunk) for _, chunk in self.before.chunks]
        for key, value in whole.items():
            if key == "args" and _arguments(whole):
                arguments, _ = followed(_arguments(whole), self.stacks, self.after)
                written[key] = argparse.Namespace(**arguments)
            elif key not in models and key != _OPTIMIZER:
                written[key] = value
        mine = [(chunk, small[at]) for at, (of, chunk) in enumerate(self.after.chunks) if of == stage]
        for chunk, leaves in mine:
            inner = written[self.after.key(chunk)] = {}
            for name, leaf in leaves.items():
                copied = leaf.value.clone() if isinstance(leaf.value, torch.Tensor) else leaf.value
                put(inner, split_name(name, leaf.keys), copied)
        save(written, path)
        again = load_safely(path, _REMEDY)
        for chunk, leaves in mine:
            found = _leaves_of(again[self.after.key(chunk)], "")
            tensors = {n: leaf.value for n, leaf in leaves.items() if isinstance(leaf.value, torch.Tensor)}
            self.read += sum(map(_size, tensors.values()))
            self.differ += [n for n, value in tensors.items() if n not in found or not same_bits(found[n].value, value)]

    def _decide(self, chunks: Sequence[_Chunk], offsets: Offsets, arguments: Mapping[str, Any], path: Path) -> None:
        import torch

        forms = {}
        for at, chunk in enumerate(chunks):
            for name, leaf in chunk.items():
                in_stack = stack_of(name, self.order.pattern)
                if in_stack and isinstance(leaf.value, torch.Tensor) and not name.endswith(_STATE):
                    stack, number = in_stack
                    rest = name.removeprefix(f"{stack}.{number}")
                    whole = f"{stack}.{offsets.whole(stack, at, number)}{rest}"
                    forms[whole] = (tuple(leaf.value.shape), str(leaf.value.dtype))
        self.stacks = plain_stacks(forms, self.order)
        if len(self.stacks) > 1 and len(chunks) > 1:
            names = " and ".join(stack["path"] for stack in self.stacks)
            raise Refused(
                f"{path.parent.parent}: {names} are shared among pipeline stages; of two stacks it is not known which "
                "stage is to hold which layers",
                "Save it with one pipeline stage.",
            )
        counted = arguments.get("num_layers")
        if len(self.stacks) == 1 and type(counted) is int and counted != self.stacks[0]["layers"]:
            raise EvidenceUnreadable(f"{path.parent.parent}: the arguments say {counted} layers, and the shards hold "
                                     f"{self.stacks[0]['layers']}", "Fetch the checkpoint again.")  # fmt: skip
        layers = len(self.stacks[0]["kept"])
        self.after = dealt(layers, self.before)
        if self.after != self.before:
            self.warnings.append(_fewer(layers, self.before, self.after))
        self.warnings += followed(arguments, self.stacks, self.after)[1]

    def _dealt(self, chunks: Sequence[_Chunk], offsets: Offsets, arguments: Mapping[str, Any]) -> list[_Chunk]:
        small = self._beside_layers(chunks, arguments)
        layers: dict[tuple[int, str, int], list[str]] = {}
        for at, chunk in enumerate(chunks):
            for name in chunk:
                in_stack = stack_of(name, self.order.pattern)
                if in_stack:
                    layers.setdefault((at, *in_stack), []).append(name)
        for stack in self.stacks:
            path, each = stack["path"], len(stack["kept"]) // len(small)
            for new, old in enumerate(stack["kept"]):
                at, number = offsets.place(path, old)
                for name in layers[at, path, number]:
                    rest = name.removeprefix(f"{path}.{number}")
                    small[new // each][f"{path}.{new % each}{rest}"] = chunks[at][name]
        return small

    def _beside_layers(self, chunks: Sequence[_Chunk], arguments: Mapping[str, Any]) -> list[_Chunk]:
        """The new chunks with what is in no layer: embedding, last norm, head. Raises Refused where it is not known to
        which chunk that belongs."""
        beside = [{n: leaf for n, leaf in chunk.items() if self._stack(n) is None} for chunk in chunks]
        number = len(self.after.chunks)
        if number == len(beside):
            return beside
        everywhere = set.intersection(*map(set, beside))
        lost = sorted({name for chunk in beside[1:-1] for name in chunk} - everywhere)
        if lost:
            raise Refused(f"{lost[0]} is in a stage that is neither first nor last, and in no layer",
                          f"Keep a multiple of {len(beside)} layers: then each stage stays.")  # fmt: skip
        small: list[_Chunk] = [{name: beside[0][name] for name in everywhere} for _ in range(number)]
        for at, chunk in ((0, beside[0]), (number - 1, beside[-1])):
            for name, leaf in chunk.items():
                if not _alike(small[at].setdefault(name, leaf).value, leaf.value):
                    raise Refused(f"the first and the last stage hold different {name}", "Keep layers for two stages.")
        if number == 1 and not arguments.get("untie_embeddings_and_output_weights"):
            embedding = next((leaf.value for n, leaf in small[0].items() if f".{n}".endswith(_EMBEDDING)), None)
            for name in [n for n in small[0] if n.endswith(_TIED) and _alike(small[0][n].value, embedding)]:
                del small[0][name]
        return small

    def _stack(self, name: str) -> str | None:
        found = stack_of(name, self.order.pattern)
        return found[0] if found and any(stack["path"] == found[0] for stack in self.stacks) else None

    def _note(self, chunks: Sequence[_Chunk], small: Sequence[_Chunk]) -> None:
        """What became of the first rank's tensors; those of the others are named alike."""
        for (stage, _), chunk in zip(self.after.chunks, small, strict=True):
            to = self.after.folder(0, stage, 0 if self.experts else None)
            self.origins |= {f"{to}/{name}": f"{leaf.file}/{leaf.name}" for name, leaf in chunk.items()}
        kept = {*self.origins.values()}
        self.dropped += [n for chunk in chunks for n in (f"{leaf.file}/{leaf.name}" for leaf in chunk.values())
                         if n not in kept]  # fmt: skip


def _fewer(layers: int, before: Stages, after: Stages) -> str:
    chunks = len(before.chunks)
    parts = (
        f"{chunks} chunks of {before.pipeline} pipeline stages" if before.virtual > 1 else f"{chunks} pipeline stages"
    )
    why = f"{layers} layers are fewer than" if layers < chunks else f"{layers} layers cannot be shared evenly among"
    now = f"{after.pipeline} stage{'s' * (after.pipeline > 1)}" + f" of {after.virtual} chunks" * (after.virtual > 1)
    return f"{why} the {parts}: written for {now}; a multiple of {chunks} layers keeps them all"


def _leaves_of(model: Any, file: str) -> _Chunk:
    if not isinstance(model, Mapping):
        raise EvidenceUnreadable(f"{file} has not the parts of a model that the others have", "Save it again.")
    return {name: _Leaf(keys, value, file, name) for keys, value in _walk(model, ()) for name in [".".join(keys)]}


def _walk(value: Mapping[Any, Any], at: Keys) -> Iterator[tuple[Keys, Any]]:
    for key, inner in value.items():
        here = (*at, str(key))
        if isinstance(inner, Mapping) and inner:
            yield from _walk(inner, here)
        else:
            yield here, inner


def _size(value: Any) -> int:
    return int(getattr(value, "nbytes", 0))


def _alike(a: Any, b: Any) -> bool:
    import torch

    tensors = isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
    return same_bits(a, b) if tensors else type(a) is type(b)
