"""The heartbeat page: one 4096-byte file a rank in node-local memory, written by the rank, read by its agent.

A tick is one pack_into on a mapped page: no system call, no lock, no file system that could freeze. Numbers are
little-endian; times are CLOCK_MONOTONIC nanoseconds, which all processes of one boot share. Layout:

    offset  type  field
         0  8s    magic, written last, so that a page with it is whole
         8  I     pid
        12  I     rank
        16  I     attempt
        20  I     phase (an index into PHASES)
        24  q     started
        32  q     optimizer steps, counted here
        40  q     time of the last step
        48  q     since when the phase holds
        56  q     batches taken from DataLoaders
        64  q     step as the script itself says it (distdbg.tick), -1 for never
      2048  q     command word, written by the agent, 0 for none
"""

from __future__ import annotations

import mmap
import os
import time
from _struct import Struct

PAGE_BYTES = 4096
MAGIC = b"ddbgpg1\n"
PHASES = ("starting", "data", "computing", "other", "exiting")
STARTING, DATA, COMPUTING, OTHER, EXITING = range(len(PHASES))
COMMAND_OFFSET = 2048

_ALL = Struct("<8s4I6q")
_TWO = Struct("<qq")
_PHASE = Struct("<I")
_ONE = Struct("<q")
_AT_PHASE, _AT_STEP, _AT_STEP_TIME, _AT_PHASE_SINCE, _AT_BATCHES, _AT_USER_STEP = 20, 32, 40, 48, 56, 64


class Page:
    """One reading. Times in ns of CLOCK_MONOTONIC; `user_step` is -1 where the script never said one."""

    __slots__ = ("attempt", "batches", "phase", "phase_ns", "pid", "rank", "started_ns", "step", "step_ns", "user_step")

    def __init__(self, pid: int, rank: int, attempt: int, phase: str, numbers: tuple[int, ...]) -> None:
        self.pid, self.rank, self.attempt, self.phase = pid, rank, attempt, phase
        self.started_ns, self.step, self.step_ns, self.phase_ns, self.batches, self.user_step = numbers


def read_page(raw: bytes) -> Page | None:
    """None for what is no page: too short, not begun yet, or another program's."""
    if len(raw) < _ALL.size:
        return None
    magic, pid, rank, attempt, phase, *numbers = _ALL.unpack_from(raw)
    if magic != MAGIC or phase >= len(PHASES):
        return None
    return Page(pid, rank, attempt, PHASES[phase], tuple(numbers))


class PageWriter:
    """The rank's side. Raises OSError only from the constructor; after `close` every tick does nothing."""

    def __init__(self, path: str, rank: int, attempt: int) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, PAGE_BYTES)
            self._page: mmap.mmap | bytearray = mmap.mmap(descriptor, PAGE_BYTES)
        finally:
            os.close(descriptor)
        now = time.monotonic_ns()
        _ALL.pack_into(self._page, 0, b"", os.getpid(), rank, attempt, STARTING, now, 0, 0, now, 0, -1)
        self._page[: len(MAGIC)] = MAGIC
        self._steps = self._batches = 0

    def step(self) -> None:
        self._steps += 1
        _TWO.pack_into(self._page, _AT_STEP, self._steps, time.monotonic_ns())

    def phase(self, code: int) -> None:
        _PHASE.pack_into(self._page, _AT_PHASE, code)
        _ONE.pack_into(self._page, _AT_PHASE_SINCE, time.monotonic_ns())

    def count_batch(self) -> None:
        self._batches += 1
        _ONE.pack_into(self._page, _AT_BATCHES, self._batches)

    def user_step(self, step: int | None) -> None:
        """The script's own count; None counts one up."""
        self._user_step = self._user_step + 1 if step is None else step
        _ONE.pack_into(self._page, _AT_USER_STEP, self._user_step)
        _ONE.pack_into(self._page, _AT_STEP_TIME, time.monotonic_ns())

    _user_step = -1

    def close(self) -> None:
        """In a forked child: the page is its parent's. Ticks go into memory of its own from now on."""
        self._page = bytearray(PAGE_BYTES)
