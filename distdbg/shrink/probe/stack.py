"""A stack of layers while it is made smaller."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from distdbg.shrink.probe.controls import StackGroup
from distdbg.shrink.probe.edits import Edits
from distdbg.shrink.probe.kinds import Counting, Fingerprint


@dataclass
class Stack:
    """A group of stacks, its kinds, and in the end what is kept of it."""

    group: StackGroup
    kinds: list[int]
    numbers: dict[str, Counting]
    prints: dict[str, list[Fingerprint]]
    lists: list[Any]
    kind_lists: list[Any]
    tap_lists: list[Any]
    taps: list[int]
    kept: list[int] = field(default_factory=list)
    edits: Edits = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.group.stacks[0]
