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
        32  q     steps: optimizer steps, counted here
        40  q     time of the last step
        48  q     since when the phase holds
        56  q     forwards through a wrapper (DDP, FSDP, compiled module)
        64  q     backwards
        72  q     batches taken from a DataLoader
        80  q     saves
        88  q     step as the script itself says it (distdbg.tick), -1 for never
      2048  q     command word, written by the agent, 0 for none
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from typing import NamedTuple

PAGE_BYTES = 4096
MAGIC = b"ddbgpg1\n"
PHASES = ("starting", "data", "forward", "backward", "optimizer", "saving", "other", "exiting")
STARTING, DATA, FORWARD, BACKWARD, OPTIMIZER, SAVING, OTHER, EXITING = range(len(PHASES))

_ALL = struct.Struct("<8s4I9q")
_STEP = struct.Struct("<qq")
_PHASE = struct.Struct("<I")
_Q = struct.Struct("<q")
_OFFSET_PHASE, _OFFSET_STEP, _OFFSET_PHASE_SINCE = 20, 32, 48
_OFFSETS = {"forwards": 56, "backwards": 64, "batches": 72, "saves": 80, "user_step": 88}
COMMAND_OFFSET = 2048


class Page(NamedTuple):
    pid: int
    rank: int
    attempt: int
    phase: str
    started_ns: int
    step: int
    step_ns: int
    phase_ns: int
    forwards: int
    backwards: int
    batches: int
    saves: int
    user_step: int


def read_page(raw: bytes) -> Page | None:
    """None for what is no page: too short, not begun yet, or another program's."""
    if len(raw) < _ALL.size:
        return None
    magic, pid, rank, attempt, phase, *numbers = _ALL.unpack_from(raw)
    if magic != MAGIC or phase >= len(PHASES):
        return None
    return Page(pid, rank, attempt, PHASES[phase], *numbers)


class PageWriter:
    """The rank's side. Every method is safe after `close`: it then does nothing."""

    def __init__(self, path: str, rank: int, attempt: int) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, PAGE_BYTES)
            self._map = mmap.mmap(descriptor, PAGE_BYTES)
        finally:
            os.close(descriptor)
        now = time.monotonic_ns()
        _ALL.pack_into(self._map, 0, b"", os.getpid(), rank, attempt, STARTING, now, 0, 0, now, 0, 0, 0, 0, -1)
        self._map[: len(MAGIC)] = MAGIC
        self._steps = 0
        self._counts = dict.fromkeys(_OFFSETS, 0)

    def step(self) -> None:
        self._steps += 1
        _STEP.pack_into(self._map, _OFFSET_STEP, self._steps, time.monotonic_ns())

    def phase(self, code: int) -> None:
        _PHASE.pack_into(self._map, _OFFSET_PHASE, code)
        _Q.pack_into(self._map, _OFFSET_PHASE_SINCE, time.monotonic_ns())

    def count(self, name: str) -> None:
        """One more of forwards, backwards, batches or saves."""
        self._counts[name] = number = self._counts[name] + 1
        _Q.pack_into(self._map, _OFFSETS[name], number)

    def user_step(self, step: int) -> None:
        _Q.pack_into(self._map, _OFFSETS["user_step"], step)
        _Q.pack_into(self._map, _OFFSET_STEP + 8, time.monotonic_ns())
