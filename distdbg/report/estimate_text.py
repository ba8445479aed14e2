"""An estimate of a peak, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from distdbg.evidence.memory_answer import gib


def estimate_text(kinds: Mapping[str, int], when: str, margin: float) -> str:
    """`kinds` are bytes by kind at the peak, `when` is the part of the step that has it."""
    total = sum(kinds.values())
    rows = [f"{gib(size):>10}  {name}" for name, size in sorted(kinds.items(), key=lambda one: -one[1]) if size]
    head = f"{gib(total)} at the peak of a rank, in its {when}; give or take {margin:.0%}"
    notes = (
        "not in it: CUDA's context and NCCL's buffers (a GiB and more), fragmentation, what the script keeps by itself"
    )
    return "\n".join([head, *rows, notes])
