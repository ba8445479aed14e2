"""Sets of ranks as one number each, a bit a rank: 16,384 ranks are 2 KiB, however they are scattered."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from distdbg.model import fold_ranks

_ONES = re.compile("1+")
#: Characters of a list of ranks in a sentence; a longer list is cut.
_MOST_CHARACTERS = 36


@dataclass(frozen=True, slots=True)
class RankSet:
    bits: int = 0

    @classmethod
    def of(cls, ranks: Iterable[int]) -> RankSet:
        found = set(ranks)
        held = bytearray(max(found, default=0) // 8 + 1)
        for rank in found:
            held[rank >> 3] |= 1 << (rank & 7)
        return cls(int.from_bytes(held, "little"))

    def spans(self) -> Iterator[tuple[int, int]]:
        """(first, last) of each run of neighbours, in order."""
        for ones in _ONES.finditer(f"{self.bits:b}"[::-1]):
            yield ones.start(), ones.end() - 1

    def text(self, most: int = 0) -> str:
        """`0-3,7`; with `most`, no longer than so many characters: `0-3,7,… (+12)` counts the ranks left out."""
        whole = fold_ranks(self)
        if not most or len(whole) <= most:
            return whole
        kept = whole[: max(1, most - 9)].rpartition(",")[0] or whole.partition(",")[0]
        shown = sum(b - a + 1 for a, b in list(self.spans())[: kept.count(",") + 1])
        return f"{kept},…(+{len(self) - shown})" if shown < len(self) else kept

    def __iter__(self) -> Iterator[int]:
        for first, last in self.spans():
            yield from range(first, last + 1)

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __bool__(self) -> bool:
        return self.bits != 0

    def __contains__(self, rank: int) -> bool:
        return self.bits >> rank & 1 == 1

    def __or__(self, other: RankSet) -> RankSet:
        return RankSet(self.bits | other.bits)

    def __and__(self, other: RankSet) -> RankSet:
        return RankSet(self.bits & other.bits)

    def __sub__(self, other: RankSet) -> RankSet:
        return RankSet(self.bits & ~other.bits)

    @property
    def first(self) -> int:
        """The smallest; -1 where there is none."""
        return (self.bits & -self.bits).bit_length() - 1

    def words(self, most: int = _MOST_CHARACTERS) -> str:
        """`rank 2`, `ranks 0-2,4-7 (7)`, `no known rank`; a list of more than `most` characters is cut."""
        if not self:
            return "no known rank"
        return f"rank {self.first}" if len(self) == 1 else f"ranks {self.text(most)} ({len(self)})"
