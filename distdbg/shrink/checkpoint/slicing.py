"""Compute the byte ranges of a checkpoint's tensors that make the small checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from distdbg.errors import Refused
from distdbg.shrink.checkpoint.tensors import BITS, Tensor


@dataclass(frozen=True)
class Cut:
    """Take only `kept` of a tensor's dimension `dim`."""

    dim: int
    kept: tuple[int, ...]


@dataclass(frozen=True)
class Piece:
    """A tensor of the small checkpoint: bytes of `source` from these (start, length) ranges, one after the other."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    source: Tensor
    ranges: tuple[tuple[int, int], ...]

    @property
    def length(self) -> int:
        return sum(length for _, length in self.ranges)


def pieces(
    tensors: Iterable[Tensor], new: Callable[[str], Sequence[str]], cuts: Mapping[str, Sequence[Cut]]
) -> tuple[list[Piece], list[str]]:
    """(what to write, names that were dropped). `new`: the new names of a tensor; `cuts`: source name -> what to take.

    The order is that of the source's files and bytes, so that neighbours there are read in one go.
    """
    taken: list[Piece] = []
    dropped: list[str] = []
    for tensor in sorted(tensors, key=lambda t: (t.file, t.start)):
        names = new(tensor.name)
        taken += [_cut(name, tensor, cuts.get(tensor.name, ())) for name in names]
        if not names:
            dropped.append(tensor.name)
    return taken, dropped


def _cut(name: str, tensor: Tensor, cuts: Sequence[Cut]) -> Piece:
    """Cuts along several dimensions; ranges that touch are one."""
    shape = list(tensor.shape)
    ranges = [(0, math.prod(shape))]  # in elements, of the source
    for cut in sorted(cuts, key=lambda c: c.dim):
        block = math.prod(tensor.shape[cut.dim :])  # what lies in one range of the dimension before, in elements
        row = math.prod(tensor.shape[cut.dim + 1 :])
        ranges = [
            (start + base + index * row, row)
            for start, length in ranges
            for base in range(0, length, block)
            for index in cut.kept
        ]
        shape[cut.dim] = len(cut.kept)
    bits = BITS[tensor.dtype]
    if any(start * bits % 8 or length * bits % 8 for start, length in ranges):
        raise Refused(
            f"{tensor.name!r} packs its {tensor.dtype} elements so that a part of it begins inside a byte",
            "Keep that dimension whole, or use --random.",
        )
    in_bytes = [(tensor.start + start * bits // 8, length * bits // 8) for start, length in ranges]
    return Piece(name, tensor.dtype, tuple(shape), tensor, tuple(joined(in_bytes)))


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges (start, length) with those that touch made one; the order stays."""
    found: list[tuple[int, int]] = []
    for start, length in ranges:
        if found and sum(found[-1]) == start:
            found[-1] = (found[-1][0], found[-1][1] + length)
        elif length:
            found.append((start, length))
    return found
