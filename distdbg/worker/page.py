"""The heartbeat page: one 4096-byte file a rank in node-local memory, written by the rank, read by its agent.

A tick is one or a few stores into a mapped page: no system call, no lock, no file system that could freeze. Numbers
are the machine's own, each stored whole (8 aligned bytes), so a reader never sees half of one; two of them may be of
different moments. Times are CLOCK_MONOTONIC nanoseconds, which all processes of one boot share. Layout:

    offset  type  field
         0  8s    magic, written last, so that a page with it is whole
         8  I     pid
        12  I     rank
        16  I     attempt
        20  I     (unused)
        24  q     started
        32  q     optimizer steps, counted here
        40  q     time of the last step
        48  q     since when the phase holds
        56  q     batches taken from DataLoaders
        64  q     step as the script itself says it (distdbg.tick), -1 for never
        72  q     phase (an index into PHASES)
        80  q     forwards, of modules that tell
        88  q     backwards
        96  q     saves
      2048  q     command word, written by the agent, 0 for none
"""

from __future__ import annotations

import mmap
import os
import time
from _struct import Struct

PAGE_BYTES = 4096
MAGIC = b"ddbgpg2\n"
PHASES = ("starting", "data", "computing", "forward", "backward", "optimizer", "saving", "other", "exiting")
STARTING, DATA, COMPUTING, FORWARD, BACKWARD, OPTIMIZER, SAVING, OTHER, EXITING = range(len(PHASES))
COMMAND_OFFSET = 2048

_ALL = Struct("@8s4I10q")
#: Where the numbers are, in words of 8 bytes
_STEPS, _STEP_TIME, _PHASE_SINCE, _BATCHES, _USER_STEP, _PHASE, _FORWARDS, _BACKWARDS, _SAVES = range(4, 13)
_COMMAND = COMMAND_OFFSET // 8

_now = time.monotonic_ns


class Page:
    """One reading. Times in ns of CLOCK_MONOTONIC; `user_step` is -1 where the script never said one."""

    __slots__ = ("attempt", "backwards", "batches", "forwards", "phase", "phase_ns", "pid", "rank", "saves",
                 "started_ns", "step", "step_ns", "user_step")  # fmt: skip

    def __init__(self, pid: int, rank: int, attempt: int, phase: str, numbers: tuple[int, ...]) -> None:
        self.pid, self.rank, self.attempt, self.phase = pid, rank, attempt, phase
        self.started_ns, self.step, self.step_ns, self.phase_ns, self.batches, self.user_step = numbers[:6]
        self.forwards, self.backwards, self.saves = numbers[6:]


def read_page(raw: bytes) -> Page | None:
    """None for what is no page: too short, not begun yet, or another program's."""
    if len(raw) < _ALL.size:
        return None
    magic, pid, rank, attempt, _, *numbers = _ALL.unpack_from(raw)
    phase = numbers.pop(6)
    if magic != MAGIC or not 0 <= phase < len(PHASES):
        return None
    return Page(pid, rank, attempt, PHASES[phase], tuple(numbers))


class PageWriter:
    """The rank's side. Raises OSError only from the constructor; after `close` every tick goes into the void."""

    def __init__(self, path: str, rank: int, attempt: int) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, PAGE_BYTES)
            page = mmap.mmap(descriptor, PAGE_BYTES)
        finally:
            os.close(descriptor)
        now = _now()
        _ALL.pack_into(page, 0, b"", os.getpid(), rank, attempt, 0, now, 0, 0, now, 0, -1, STARTING, 0, 0, 0)
        page[: len(MAGIC)] = MAGIC
        self._words = memoryview(page).cast("q")

    def step(self, then: int) -> None:
        """An optimizer has stepped; `then` is the phase that follows."""
        words, now = self._words, _now()
        words[_STEPS] += 1
        words[_STEP_TIME] = words[_PHASE_SINCE] = now
        words[_PHASE] = then

    def phase(self, code: int) -> None:
        words = self._words
        words[_PHASE_SINCE] = _now()
        words[_PHASE] = code

    def batch(self, then: int) -> None:
        self._words[_BATCHES] += 1
        self.phase(then)

    def forward(self, then: int) -> None:
        self._words[_FORWARDS] += 1
        self.phase(then)

    def backward(self, then: int) -> None:
        self._words[_BACKWARDS] += 1
        self.phase(then)

    def save(self, then: int) -> None:
        self._words[_SAVES] += 1
        self.phase(then)

    def user_step(self, step: int | None) -> None:
        """The script's own count; None counts one up. What does not fit into 64 bits raises ValueError."""
        words = self._words
        words[_USER_STEP] = words[_USER_STEP] + 1 if step is None else step
        words[_STEP_TIME] = _now()

    def command(self) -> int:
        """What the agent has written last; 0 for nothing."""
        return self._words[_COMMAND]

    def close(self) -> None:
        """In a forked child: the page is its parent's. Ticks go into memory of its own from now on."""
        self._words = memoryview(bytearray(PAGE_BYTES)).cast("q")
