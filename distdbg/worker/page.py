"""Write this rank's heartbeat page (protocol/page.py), which its agent reads.

A tick is one or a few stores into a mapped page: no system call, no lock, no file system that could freeze.
"""

from __future__ import annotations

import os
import time

from distdbg.protocol.page import LAYOUT, MAGIC, PAGE_BYTES, PHASES
from distdbg.worker.mapping import map_new_file

STARTING, DATA, COMPUTING, FORWARD, BACKWARD, OPTIMIZER, SAVING, OTHER, EXITING = range(len(PHASES))

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from distdbg.worker.hooks.bus import Bus

#: Where the numbers are, in words of 8 bytes
STEPS, _STEP_TIME, _PHASE_SINCE, BATCHES, _USER_STEP, _PHASE = range(4, 10)
FORWARDS, BACKWARDS, SAVES, DATA_ENDS, CALLS, _CALL_TIME, ASKS = range(10, 17)
_FORWARD_TIME, _BACKWARD_TIME, _TRANSFERS, _EPOCHS, REPLAYS, _REPLAY_TIME, _OPTIMIZER_TIME = range(17, 24)
_WORDS = 24
_TIME_OF = {BACKWARDS: _BACKWARD_TIME, STEPS: _STEP_TIME, CALLS: _CALL_TIME, REPLAYS: _REPLAY_TIME}

_now = time.monotonic_ns


class PageWriter:
    """The rank's side; without a path no other process can read it. Raises OSError only from the constructor."""

    def __init__(self, path: str | None, rank: int, attempt: int) -> None:
        page = memoryview(bytearray(PAGE_BYTES)) if path is None else map_new_file(path, PAGE_BYTES)
        now = _now()
        LAYOUT.pack_into(page, 0, b"", os.getpid(), rank, attempt, 0, now, 0, 0, now, 0, -1, STARTING, *[0] * 14)
        page[: len(MAGIC)] = MAGIC
        self._words = page.cast("q")
        #: the page's counts, by their words: to read one in the page takes as long as to store two there
        self._counts = [0] * _WORDS
        #: by what is counted, steps or backwards: the next number at which somebody is called
        self._due = {STEPS: [-1], BACKWARDS: [-1]}
        self._rings: dict[int, dict[Callable[[], object], int]] = {STEPS: {}, BACKWARDS: {}}

    def phase(self, code: int) -> None:
        words = self._words
        words[_PHASE_SINCE] = _now()
        words[_PHASE] = code

    def subscribe(self, bus: Bus, seen: Callable[[object], object] = id) -> None:
        """Keep the phase that the rank began last, and counts of events. `seen`: see forward_ticker.

        A phase ends with the next event: "forward" lasts until the backward, "backward" until the optimizer begins.
        "computing" is a rank that has a batch and has sent no event since: without DDP or FSDP its forward sends none.
        """
        for event, tick in (
            ("data", self.ticker(DATA, ASKS)),
            ("batch", self.ticker(COMPUTING, BATCHES)),
            ("data-end", self.ticker(OTHER, DATA_ENDS)),
            ("forward", self.forward_ticker(seen)),
            ("backward", self.ticker(BACKWARD, BACKWARDS)),
            ("optimizer", self._optimizer_begins()),
            ("step", self.ticker(OTHER, STEPS)),
            ("save", self.ticker(SAVING, SAVES)),
            ("save-end", self.ticker(OTHER)),
            ("replay", self.counter(REPLAYS)),
        ):
            bus.subscribe(event, tick, never_raises=True)
        bus.subscribe("pass", self.pass_begins)
        bus.subscribe("data-end", self.pass_ends)

    def ticker(self, phase: int, count: int | None = None) -> Callable[[object], None]:
        """A function that begins a phase and increments a count (STEPS, BATCHES, …); it ignores its argument.

        One call, no attribute: 0.2 us. It keeps to the page that it was made for, also after `close`.
        """
        words, counts, now, since, at = self._words, self._counts, _now, _PHASE_SINCE, _PHASE
        due, when = self._due.get(count or 0, [-1]), _TIME_OF.get(count or 0)

        def tick(_subject: object) -> None:
            words[since] = now()
            words[at] = phase

        def tick_and_count(_subject: object) -> None:
            counts[count] = words[count] = counts[count] + 1  # type: ignore[index]
            words[since] = now()
            words[at] = phase

        def tick_and_ring(_subject: object) -> None:
            counts[count] = words[count] = number = counts[count] + 1  # type: ignore[index]
            words[when] = words[since] = now()  # type: ignore[index]
            words[at] = phase
            if number == due[0]:
                self._ring(count)  # type: ignore[arg-type]

        if count is None:
            return tick
        return tick_and_ring if count in self._due else tick_and_count

    def forward_ticker(self, seen: Callable[[object], object] = id) -> Callable[[object], None]:
        """The ticker of forwards. `seen` gets the module, and must not raise. A subscriber would cost 1 us more."""
        words, counts, now, since, at = self._words, self._counts, _now, _PHASE_SINCE, _PHASE
        count, when, phase = FORWARDS, _FORWARD_TIME, FORWARD

        def forward_begins(module: object) -> None:
            counts[count] = words[count] = counts[count] + 1
            words[when] = words[since] = now()
            words[at] = phase
            seen(module)

        return forward_begins

    def at_step(self, number: int, ring: Callable[[], object]) -> None:
        """Call `ring` once, when this step of the optimizer is counted; other steps cost no more.

        A past number never occurs. Each function has one number: the newest.
        """
        self._at(STEPS, number, ring)

    def at_backward(self, number: int, ring: Callable[[], object]) -> None:
        """The same for a backward, as it begins."""
        self._at(BACKWARDS, number, ring)

    def _at(self, count: int, number: int, ring: Callable[[], object]) -> None:
        self._rings[count][ring] = number
        self._set_due(count)

    def _set_due(self, count: int) -> None:
        self._due[count][0] = min((n for n in self._rings[count].values() if n > self._counts[count]), default=-1)

    def _ring(self, count: int) -> None:
        due = [ring for ring, number in self._rings[count].items() if number == self._counts[count]]
        for ring in due:
            del self._rings[count][ring]
        self._set_due(count)
        for ring in due:
            ring()

    def reset_counts(self) -> None:
        """Count steps, batches and backwards from 0 again."""
        for count in (STEPS, BATCHES, BACKWARDS):
            self._counts[count] = self._words[count] = 0
        for count, rings in self._rings.items():
            rings.clear()
            self._due[count][0] = -1

    def steps(self) -> int:
        return self._counts[STEPS]

    def batches(self) -> int:
        return self._counts[BATCHES]

    def backwards(self) -> int:
        return self._counts[BACKWARDS]

    def counter(self, count: int) -> Callable[[object], None]:
        """A function that counts a call of torch.distributed, or a replay of a CUDA graph; it ignores its argument.

        The phase does not change: a part of a step can be a graph.
        """
        words, counts, now, at = self._words, self._counts, _now, _TIME_OF[count]

        def count_one(_subject: object) -> None:
            counts[count] = words[count] = counts[count] + 1
            words[at] = now()

        return count_one

    def _optimizer_begins(self) -> Callable[[object], None]:
        """The backward before it is over."""
        words, now, since, at, began = self._words, _now, _PHASE_SINCE, _PHASE, _OPTIMIZER_TIME

        def begins(_optimizer: object) -> None:
            words[since] = words[began] = now()
            words[at] = OPTIMIZER

        return begins

    def transfer(self) -> Callable[[], None]:
        """A function that counts a send or a receive."""
        words, counts = self._words, self._counts

        def count() -> None:
            counts[_TRANSFERS] = words[_TRANSFERS] = counts[_TRANSFERS] + 1

        return count

    def pass_begins(self, iterator: Any) -> None:
        """A loader's iterator begins; it keeps the count itself, since passes can be nested and can end early."""
        iterator._distdbg_begun = self._counts[STEPS]

    def pass_ends(self, iterator: Any) -> None:
        """The pass is complete: an epoch, where the optimizer made steps in it."""
        steps = self._counts[STEPS]
        if steps > getattr(iterator, "_distdbg_begun", steps):
            self._counts[_EPOCHS] = self._words[_EPOCHS] = self._counts[_EPOCHS] + 1

    def epochs(self) -> int:
        return self._counts[_EPOCHS]

    def user_step(self, step: int | None) -> None:
        """The script's own count; None increments it. A number of more than 64 bits raises ValueError."""
        words = self._words
        words[_USER_STEP] = words[_USER_STEP] + 1 if step is None else step
        words[_STEP_TIME] = _now()

    def close(self) -> None:
        """In a forked child: the page is its parent's. Later writes have no effect; unsubscribe tickers."""
        self._words = memoryview(bytearray(PAGE_BYTES)).cast("q")
