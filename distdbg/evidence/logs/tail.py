"""The end of a text file, as it was read: so small a module because the launcher loads it before it starts anything."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tail:
    """The end of a text file; `first_line` is the 1-based number of its first line, 0 where nobody counted.

    `before`: bytes of the file that stand before it. `unread`: why a file that exists was not read.
    """

    text: str = ""
    first_line: int = 1
    before: int = 0
    unread: str = ""
