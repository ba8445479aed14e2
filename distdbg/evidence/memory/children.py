"""Collect the memory of a rank's children over its steps, mostly loader workers, from the looks of its agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distdbg.evidence.jsonl import dicts, integer

#: Of each rank so many processes, the newest: a loader without persistent workers has new ones in each epoch.
_MOST = 64
#: Less growth than this, or than this share of what it was, is not worth a word.
_LEAST, _SHARE = 32 << 20, 0.1


@dataclass(frozen=True)
class Child:
    """`points` are (the rank's step, bytes that are no file's and not shared, ends of the rank's epochs or -1)."""

    pid: int
    command: str
    points: tuple[tuple[int, int, int], ...]

    @property
    def grown(self) -> int:
        """Since it was smallest; 0 where that is not worth a word."""
        least = min(size for _, size, _ in self.points)
        total = self.points[-1][1] - least
        return total if total >= max(_LEAST, _SHARE * least) else 0

    @property
    def since(self) -> int:
        """The step up to which it had not begun to: what it was then is in the first tenth of what it grew by."""
        least, total = min(size for _, size, _ in self.points), self.grown
        return max(step for step, size, _ in self.points if size <= least + 0.1 * total)

    @property
    def who(self) -> str:
        words = "its loader's worker" if self.command.startswith("pt_data_") else "its child"
        return f"{words} {self.pid}" + (f" ({self.command})" if self.command and words == "its child" else "")


def children(lines: Sequence[tuple[int, Mapping[str, Any]]]) -> dict[int, tuple[Child, ...]]:
    """The children of each rank, from lines of metrics.jsonl. Other lines are skipped."""
    found: dict[int, dict[int, list[tuple[int, int, int]]]] = {}
    commands: dict[int, str] = {}
    for _, line in lines:
        for row in dicts(line.get("ranks")):
            rank, looks = integer(row, "rank"), row.get("children")
            for look in looks if rank is not None and isinstance(looks, list) else ():
                if not (isinstance(look, list) and len(look) == 3 and all(type(n) is int for n in look[:2])):
                    continue
                pid, size, command = look
                commands[pid] = str(command)[:60]
                of = found.setdefault(rank or 0, {})
                epochs = integer(row, "epochs")
                step = integer(row, "step") or 0
                of.setdefault(pid, []).append((step, size, -1 if epochs is None else epochs))
    return {
        rank: tuple(Child(pid, commands[pid], tuple(points)) for pid, points in list(of.items())[-_MOST:])
        for rank, of in found.items()
    }
