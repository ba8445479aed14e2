"""Render an estimate of peak memory, and what fits on a GPU, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from distdbg.evidence.memory.answer import gib


class Fit(Protocol):
    """What shrink.fitting answers for one of batch, sequence and layers."""

    @property
    def axis(self) -> str: ...
    @property
    def largest(self) -> int | None: ...
    @property
    def own(self) -> int | None: ...
    @property
    def most(self) -> int: ...
    @property
    def because(self) -> str: ...


def estimate_text(kinds: Mapping[str, int], when: str, margin: float, unheard: Sequence[str] = ()) -> str:
    """`kinds` are bytes by kind at the peak, `when` is the part of the step that has it; `unheard` is what the model
    takes beside tokens."""
    total = sum(kinds.values())
    rows = [f"{gib(size):>10}  {name}" for name, size in sorted(kinds.items(), key=lambda one: -one[1]) if size]
    head = f"{gib(total)} at the peak of a rank, in its {when}; give or take {margin:.0%}"
    notes = (
        "not in it: CUDA's context and NCCL's buffers (a GiB and more), fragmentation, what the script keeps by itself"
    )
    alone = [f"computed with tokens alone: {' and '.join(unheard)} input takes more"] if unheard else []
    return "\n".join([head, *rows, notes, *alone])


def fits_text(card: str, room: int, fits: Sequence[Fit], batch: int, sequence: int) -> str:
    """A line for each of `fits`; `batch` and `sequence` are what was asked for and stays beside it."""
    size = f" ({gib(room)} to be had)" if not card[:1].isdigit() else ""
    return "\n".join([f"{card}{size}, margin included, has room for one of", *_lines(fits, batch, sequence)])


def _lines(fits: Sequence[Fit], batch: int, sequence: int) -> Iterator[str]:
    beside = {"batch": f"of {sequence:,} tokens", "sequence": f"in a batch of {batch:,}",
              "layers": f"at a batch of {batch:,} x {sequence:,} tokens"}  # fmt: skip
    for fit in fits:
        if fit.largest is None:
            yield f"  {fit.axis:<9} unknown, because {fit.because}"
            continue
        what = {"batch": "sequences", "sequence": "tokens", "layers": "layers"}[fit.axis]
        largest_words = f"{fit.largest:,} {what}" if fit.largest else f"none: not even the fewest {what}"
        largest_words += " and more" if fit.largest == fit.most and fit.axis == "layers" else ""
        yield f"  {fit.axis:<9} {largest_words} {beside[fit.axis]}{_own(fit)}"


def _own(fit: Fit) -> str:
    if not fit.own or fit.largest is None:
        return ""
    if fit.axis == "sequence":
        return f": all that the model knows ({fit.own:,})" if fit.largest == fit.own else f", of {fit.own:,} it knows"
    return f"; it has {fit.own:,}"
