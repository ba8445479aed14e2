"""Deal the layers of a Megatron checkpoint among its pipeline stages, and find each in the shards.

A stage numbers its layers from 0. With a virtual pipeline each stage holds several chunks, `model0`, `model1`, …; the
model goes through the first chunk of every stage, then through the second of every stage.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from pathlib import Path

from distdbg.errors import EvidenceUnreadable
from distdbg.shrink.checkpoint.layer_names import number_of
from distdbg.shrink.checkpoint.source import resolve_within

TRACKER = "latest_checkpointed_iteration.txt"
_RANK = re.compile(r"mp_rank_(\d{1,5})(?:_(\d{1,5}))?(?:_(\d{1,5}))?", re.ASCII)
_WEIGHTS = ("model_optim_rng.pt", "model_rng.pt")
#: the lists of layers in Megatron's names; what predicts more tokens (`mtp.layers`) is no part of the stack
_STACKS = (".encoder.layers", ".decoder.layers", ".transformer.layers")


@dataclass(frozen=True)
class Stages:
    """`pipeline` stages of `virtual` chunks each."""

    pipeline: int
    virtual: int

    @property
    def chunks(self) -> list[tuple[int, int]]:
        """(stage, chunk of the stage) in the order that the model goes through them."""
        return [(stage, chunk) for chunk in range(self.virtual) for stage in range(self.pipeline)]

    def key(self, chunk: int) -> str:
        """What a file calls a chunk of its stage."""
        return "model" if self.virtual == 1 else f"model{chunk}"

    def folder(self, tensor: int, stage: int, expert: int | None) -> str:
        """The folder of a rank; the stage has no number where there is one, nor the expert where `expert` is None."""
        parts = [f"mp_rank_{tensor:02d}"] + [f"{stage:03d}"] * (self.pipeline > 1)
        return "_".join([*parts, f"{expert:03d}"] if expert is not None else parts)


def dealt(layers: int, before: Stages) -> Stages:
    """The most stages, and then chunks, up to those before, that `layers` can be shared among evenly."""
    pipeline = max(n for n in range(1, before.pipeline + 1) if layers % n == 0)
    virtual = max(n for n in range(1, before.virtual + 1) if layers % (pipeline * n) == 0)
    return Stages(pipeline, virtual if pipeline > 1 else 1)


#: (tensor rank, pipeline stage, expert rank) -> the file with its weights
Shards = dict[tuple[int, int, int], Path]


def weights_file(folder: Path) -> Path | None:
    """The file with a rank's weights."""
    return next((folder / name for name in _WEIGHTS if (folder / name).is_file()), None)


def iteration_of(folder: Path) -> Path:
    """The folder of the iteration that the tracker names; `folder` itself where it has no tracker. Raises
    EvidenceUnreadable where that is not there."""
    tracker = folder / TRACKER
    if not tracker.is_file():
        return folder
    resolve_within(folder, TRACKER)
    said = tracker.read_text(encoding="utf-8", errors="replace").strip()
    iteration = number_of(said)
    name = said if iteration is None else f"iter_{iteration:07d}"
    if iteration is None and said != "release":
        raise EvidenceUnreadable(f"{tracker} names no iteration: {said[:40]!r}", "Name the folder of an iteration.")
    if not (folder / name).is_dir():
        raise EvidenceUnreadable(f"{tracker} names {name}, which is not there", "Name the folder of another iteration.")
    resolve_within(folder, name)
    return folder / name


def is_iteration(folder: Path) -> bool:
    """Whether it has a folder for each rank with the rank's weights."""
    return any(_RANK.fullmatch(entry.name) and weights_file(entry) for entry in folder.iterdir())


def shards_of(folder: Path, stages_first: bool) -> Shards:
    """`stages_first`: what the second number of `mp_rank_00_001` is, where there is no third: the stage, or the expert
    rank. Raises EvidenceUnreadable where one is missing."""
    found: Shards = {}
    names = {}
    for entry in sorted(folder.iterdir()):
        match = _RANK.fullmatch(entry.name)
        if match is None:
            continue
        first, *rest = (int(number or 0) for number in match.groups())
        stage, expert = rest if match[3] or stages_first else reversed(rest)
        path = weights_file(entry)
        if path is None:
            raise EvidenceUnreadable(f"{entry} holds no {_WEIGHTS[0]}", "Fetch the checkpoint again.")
        resolve_within(folder, str(path.relative_to(folder)))
        found[first, stage, expert], names[first, stage, expert] = path, entry.name
    sizes = [range(max(numbers) + 1) for numbers in zip(*found, strict=True)]
    missing = next((at for at in product(*sizes) if at not in found), None)
    if missing is not None:
        tensor, stage, expert = missing
        raise EvidenceUnreadable(
            f"{folder} has no shard of tensor rank {tensor}, stage {stage}, expert rank {expert}; it has "
            f"{', '.join(names.values())}",
            "Fetch the checkpoint again.",
        )
    return found


def stack_of(name: str, pattern: str | None) -> tuple[str, int] | None:
    """The stack that a tensor belongs to, and the number of its layer there; None for what is in no layer."""
    parts = name.split(".")
    at, number = next(((i, n) for i, part in enumerate(parts) if i and (n := number_of(part)) is not None), (0, 0))
    if not at or at == len(parts) - 1:
        return None
    stack = ".".join(parts[:at])
    known = f".{stack}".endswith(_STACKS) and "mtp" not in parts[:at] if pattern is None else stack == pattern
    return (stack, number) if known else None


@dataclass(frozen=True)
class Offsets:
    """`counts`: stack -> the number of its layers in each chunk."""

    counts: Mapping[str, Sequence[int]]

    def whole(self, stack: str, chunk: int, number: int) -> int:
        """The number of a layer in the model."""
        return sum(self.counts[stack][:chunk]) + number

    def place(self, stack: str, layer: int) -> tuple[int, int]:
        """The chunk of a layer of the model, and the layer's number in it."""
        ends = list(accumulate(self.counts[stack]))
        chunk = next(i for i, end in enumerate(ends) if layer < end)
        return chunk, layer - ends[chunk] + self.counts[stack][chunk]


def offsets_of(chunks: Sequence[Collection[str]], pattern: str | None) -> Offsets:
    """`chunks`: the names in each. Raises EvidenceUnreadable where a chunk does not number its layers from 0."""
    found = [{stack_of(name, pattern) for name in names} - {None} for names in chunks]
    stacks = sorted({at[0] for chunk in found for at in chunk if at})
    counts: dict[str, list[int]] = {}
    for stack in stacks:
        numbers = [{at[1] for at in chunk if at and at[0] == stack} for chunk in found]
        wrong = next((i for i, n in enumerate(numbers) if n != set(range(len(n)))), None)
        if wrong is not None:
            raise EvidenceUnreadable(f"stage {wrong} does not number {stack} from 0 without a gap",
                                     "Save the checkpoint again, or name the layers with --pattern.")  # fmt: skip
        counts[stack] = [len(n) for n in numbers]
    return Offsets(counts)
