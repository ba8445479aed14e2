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
        80  q     forwards of DDP and FSDP modules
        88  q     backwards
        96  q     saves
       104  q     complete passes over loaders
       112  q     calls of torch.distributed by Python code
       120  q     time of the last of them
       128  q     batches that were asked for: one more than taken while the rank waits, and after a stream's end
       136  q     time of the last forward
       144  q     time of the last backward
       152  q     sends and receives among the calls of torch.distributed
       160  q     passes over loaders in which steps were made: epochs, and no validation
      2048  q     command word, written by the agent, 0 for none
"""

from __future__ import annotations

import mmap
import os
import time
from _struct import Struct

from distdbg.whole_file import open_own

PAGE_BYTES = 4096
MAGIC = b"ddbgpg5\n"
PHASES = ("starting", "data", "computing", "forward", "backward", "optimizer", "saving", "other", "exiting")
STARTING, DATA, COMPUTING, FORWARD, BACKWARD, OPTIMIZER, SAVING, OTHER, EXITING = range(len(PHASES))
COMMAND_OFFSET = 2048
STEPS_OFFSET = 32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_ALL = Struct("@8s4I18q")
#: Where the numbers are, in words of 8 bytes
STEPS, _STEP_TIME, _PHASE_SINCE, BATCHES, _USER_STEP, _PHASE = range(4, 10)
FORWARDS, BACKWARDS, SAVES, DATA_ENDS, CALLS, _CALL_TIME, ASKS = range(10, 17)
_FORWARD_TIME, _BACKWARD_TIME, _TRANSFERS, _EPOCHS = range(17, 21)
_TIME_OF = {FORWARDS: _FORWARD_TIME, BACKWARDS: _BACKWARD_TIME}
_COMMAND = COMMAND_OFFSET // 8

_now = time.monotonic_ns


class Page:
    """One reading. Times in ns of CLOCK_MONOTONIC; `user_step` is -1 where the script never said one."""

    __slots__ = ("asks", "attempt", "backward_ns", "backwards", "batches", "call_ns", "calls", "data_ends", "epochs",
                 "forward_ns", "forwards", "phase", "phase_ns", "pid", "rank", "saves", "started_ns", "step", "step_ns",
                 "transfers", "user_step")  # fmt: skip

    def __init__(self, pid: int, rank: int, attempt: int, phase: str, numbers: tuple[int, ...]) -> None:
        self.pid, self.rank, self.attempt, self.phase = pid, rank, attempt, phase
        self.started_ns, self.step, self.step_ns, self.phase_ns, self.batches, self.user_step = numbers[:6]
        self.forwards, self.backwards, self.saves, self.data_ends, self.calls, self.call_ns, self.asks = numbers[6:13]
        self.forward_ns, self.backward_ns, self.transfers, self.epochs = numbers[13:]

    @property
    def heard(self) -> int:
        """The sum of all counts: while it does not change, the rank makes no progress that sends events."""
        counted = self.step + self.batches + self.forwards + self.backwards + self.saves + self.data_ends + self.calls
        return counted + max(self.user_step, 0)

    @property
    def heard_ns(self) -> int:
        """The time of the last event."""
        return max(self.phase_ns, self.step_ns, self.call_ns, self.started_ns)


def read_page(raw: bytes) -> Page | None:
    """None for bytes that are no page: too short, not begun, or another program's."""
    if len(raw) < _ALL.size:
        return None
    magic, pid, rank, attempt, _, *numbers = _ALL.unpack_from(raw)
    phase = numbers.pop(6)
    if magic != MAGIC or not 0 <= phase < len(PHASES):
        return None
    return Page(pid, rank, attempt, PHASES[phase], tuple(numbers))


def mapped(path: str, size: int) -> mmap.mmap:
    """A new file of zeros without holes: on a full file system a store into a hole is a SIGBUS.

    Raises OSError, and then leaves no file.
    """
    descriptor = open_own(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        zeros = bytes(size)  # not fallocate, which some file systems do not have
        while zeros:
            zeros = zeros[os.write(descriptor, zeros) :]
        return mmap.mmap(descriptor, size)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)


class PageWriter:
    """The rank's side; without a path no other process can read it. Raises OSError only from the constructor."""

    def __init__(self, path: str | None, rank: int, attempt: int) -> None:
        page = bytearray(PAGE_BYTES) if path is None else mapped(path, PAGE_BYTES)
        now = _now()
        _ALL.pack_into(page, 0, b"", os.getpid(), rank, attempt, 0, now, 0, 0, now, 0, -1, STARTING, *[0] * 11)
        page[: len(MAGIC)] = MAGIC
        self._words = memoryview(page).cast("q")
        self._due = [-1]
        self._rings: dict[Callable[[], object], int] = {}

    def phase(self, code: int) -> None:
        words = self._words
        words[_PHASE_SINCE] = _now()
        words[_PHASE] = code

    def ticker(self, phase: int, count: int | None = None) -> Callable[[object], None]:
        """A function that begins a phase and increments a count (STEPS, BATCHES, …); it ignores its argument.

        One call, no attribute: 0.2 us. It keeps to the page that it was made for, also after `close`.
        """
        words, now, since, at = self._words, _now, _PHASE_SINCE, _PHASE
        due, when = self._due, _TIME_OF.get(count or 0)

        def tick(_subject: object) -> None:
            words[since] = now()
            words[at] = phase

        def tick_and_count(_subject: object) -> None:
            words[count] += 1  # type: ignore[index]
            words[since] = now()
            words[at] = phase

        def tick_count_and_time(_subject: object) -> None:
            words[count] += 1  # type: ignore[index]
            words[when] = words[since] = now()  # type: ignore[index]
            words[at] = phase

        def step(_subject: object) -> None:
            words[STEPS] = count = words[STEPS] + 1
            words[since] = words[_STEP_TIME] = now()
            words[at] = phase
            if count == due[0]:
                self._ring()

        if count is None:
            return tick
        return step if count == STEPS else tick_and_count if when is None else tick_count_and_time

    def at_step(self, number: int, ring: Callable[[], object]) -> None:
        """Call `ring` once, when this step of the optimizer is counted; other steps cost no more.

        A past number never occurs. Each function has one number: the newest.
        """
        self._rings[ring] = number
        self._set_due()

    def _set_due(self) -> None:
        self._due[0] = min((n for n in self._rings.values() if n > self._words[STEPS]), default=-1)

    def _ring(self) -> None:
        due = [ring for ring, number in self._rings.items() if number == self._words[STEPS]]
        for ring in due:
            del self._rings[ring]
        self._set_due()
        for ring in due:
            ring()

    def reset_counts(self) -> None:
        """Count steps and batches from 0 again."""
        self._words[STEPS] = self._words[BATCHES] = 0
        self._rings.clear()
        self._due[0] = -1

    def steps(self) -> int:
        return self._words[STEPS]

    def batches(self) -> int:
        return self._words[BATCHES]

    def backwards(self) -> int:
        return self._words[BACKWARDS]

    def caller(self) -> Callable[[], None]:
        """A function that counts a call of torch.distributed; the phase does not change."""
        words, now, count, at = self._words, _now, CALLS, _CALL_TIME

        def call() -> None:
            words[count] += 1
            words[at] = now()

        return call

    def transfer(self) -> Callable[[], None]:
        """A function that counts a send or a receive."""
        words = self._words

        def count() -> None:
            words[_TRANSFERS] += 1

        return count

    def pass_begins(self, iterator: Any) -> None:
        """A loader's iterator begins; it keeps the count itself, since passes can be nested and can end early."""
        iterator.__dict__["_distdbg_begun"] = self._words[STEPS]

    def pass_ends(self, iterator: Any) -> None:
        """The pass is complete: an epoch, where the optimizer made steps in it."""
        if self._words[STEPS] > iterator.__dict__.get("_distdbg_begun", self._words[STEPS]):
            self._words[_EPOCHS] += 1

    def epochs(self) -> int:
        return self._words[_EPOCHS]

    def user_step(self, step: int | None) -> None:
        """The script's own count; None increments it. A number of more than 64 bits raises ValueError."""
        words = self._words
        words[_USER_STEP] = words[_USER_STEP] + 1 if step is None else step
        words[_STEP_TIME] = _now()

    def command(self) -> int:
        """The word that the agent has written last; 0 for none."""
        return self._words[_COMMAND]

    def close(self) -> None:
        """In a forked child: the page is its parent's. Later writes have no effect; unsubscribe tickers."""
        self._words = memoryview(bytearray(PAGE_BYTES)).cast("q")
