"""Phrases about memory snapshots that several rules share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from distdbg.evidence.memory.answer import (
    ACTIVATIONS,
    GRADIENTS,
    INPUTS,
    OPTIMIZER_STATE,
    PARAMETERS,
    REPLICAS,
    MemoryAnswer,
    Moment,
    StackInfo,
    gib,
)
from distdbg.model import Citation, grouped
from distdbg.wording import name_ranks

_MOST_FRAMES = 8
#: What lowers each kind of memory.
LOWERS = {
    ACTIVATIONS: "a smaller batch or sequence, or activation checkpointing",
    OPTIMIZER_STATE: "FSDP2 or ZeroRedundancyOptimizer to shard it, or an optimizer with less state",
    PARAMETERS: "FSDP2 to shard them, or a smaller dtype",
    GRADIENTS: "FSDP2 to shard them, zero_grad(set_to_none=True) before the forward, or smaller accumulation buffers",
    REPLICAS: "DistributedDataParallel in place of DataParallel, which copies the model in each forward",
    INPUTS: "a smaller batch or sequence",
}


def alike(
    answers: Iterable[MemoryAnswer], figures: Callable[[MemoryAnswer], object]
) -> Iterator[tuple[MemoryAnswer, str, tuple[int, ...]]]:
    """Snapshots with the same figures: the first of them, whose they are (`ranks 0-7 each`), and their ranks."""
    groups = grouped(((figures(answer), answer.path if answer.rank is None else ""), answer) for answer in answers)
    for group in groups.values():
        ranks = tuple(sorted({rank for answer in group for rank in answer.ranks}))
        yield group[0], f"{name_ranks(ranks)} each" if len(ranks) > 1 else group[0].who, ranks


def stack_citation(answer: MemoryAnswer, stack: StackInfo, where: str) -> Citation:
    """The file, and the stack as the quote."""
    frames = [f for f in stack.frames if "nn/modules/module.py:" not in f] or [stack.label]
    lines = frames[:_MOST_FRAMES]
    if len(frames) > _MOST_FRAMES:
        lines.append(f"… and {len(frames) - _MOST_FRAMES} more frames")
    return Citation(answer.path, None, f"{where}, device {answer.device}", "\n".join(lines))


def kinds_words(moment: Moment, most: int = 4) -> str:
    """`activations 3.62 GiB, unattributed 4.86 GiB`."""
    return ", ".join(f"{kind} {gib(size)}" for kind, size in list(moment.kinds.items())[:most] if size)


def holders_words(answer: MemoryAnswer, moment: Moment, most: int = 3) -> str:
    """`model.py:54 forward 12.0 GiB, …`."""
    shown = moment.holders[:most]
    return ", ".join(f"{answer.stacks[h.stack].label} {gib(h.bytes)}" for h in shown)
