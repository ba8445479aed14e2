"""A line of a log as a person sees it among others' lines.

Raw output (one rank alone) is passed on byte by byte. Beside a prefix that cannot be: a cursor that moves, or a `\\r`
that returns to the margin, would write over other ranks' lines and over the prefix itself. There a progress bar is
shown in its last state, and of control sequences only colours and weights are left.
"""

from __future__ import annotations

from distdbg.plain_text import guarded, without_controls

_RESET = "\x1b[0m"


def last_state(data: bytes) -> bytes:
    """What stands on the line in the end: the part after the last `\\r` that something follows."""
    return data.rstrip(b"\r").rpartition(b"\r")[2]


def states(data: bytes) -> list[bytes]:
    """Everything that stood on the line, in turn."""
    return data.rstrip(b"\r").split(b"\r")


def plain(data: bytes) -> str:
    """Text alone: what is no UTF-8 shows as U+FFFD, control sequences are gone. What `--grep` looks at."""
    return without_controls(data.decode("utf-8", "replace"))


def coloured(data: bytes) -> str:
    """As plain, but with its colours, which end with the line."""
    kept = guarded(data.decode("utf-8", "replace"), colours=True)
    return kept + _RESET if "\x1b[" in kept and not kept.endswith((_RESET, "\x1b[m")) else kept


def rank_prefix(rank: int) -> str:
    return f"[rank {rank}] "
