"""The agent's event loop: descriptors, timers, signals; one thread, nothing that blocks."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import FrameType

Action = Callable[[], None]


def signal_pipe(signals: Iterable[int]) -> int:
    """A descriptor from which the number of each signal that comes can be read; no handler does anything else."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for signum in signals:
        if signal.getsignal(signum) is not signal.SIG_IGN:  # nohup's ignored SIGHUP stays ignored
            signal.signal(signum, lambda *_: None)
    return reader


@contextlib.contextmanager
def handled(signals: Iterable[int], handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Call `handler` for these signals inside the block, in the main thread; nohup's ignored SIGHUP stays ignored."""
    in_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in signals if in_main}
    changed = [number for number, own in before.items() if own is not signal.SIG_IGN]
    for number in changed:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, before[number])


class Loop:
    """`foreign` gets keys that somebody else registered with `selector` (their data cannot be called).

    An action that raises is an error of ours, which `broke` hears of. The loop goes on: it costs what that action
    would have found out, and never the job.
    """

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.foreign: Callable[[selectors.SelectorKey], None] = lambda _key: None
        self.broke: Callable[[Exception], None] = lambda _error: None
        self._timers: list[tuple[float, Action]] = []

    def turn(self) -> None:
        """Wait for the next thing and deal with it."""
        wait = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
        for key, _ in self.selector.select(wait):
            action = key.data if callable(key.data) else partial(self.foreign, key)
            if not self._do(action):
                self.forget(key.fileobj)  # it would be readable, and raise, again and again
        while self._timers and self._timers[0][0] <= time.monotonic():
            self._do(self._timers.pop(0)[1])

    def _do(self, action: Action) -> bool:
        try:
            action()
        except Exception as error:
            self.broke(error)
            return False
        return True

    def turn_until(self, done: Callable[[], bool], seconds: float, every: Action = lambda: None) -> bool:
        """Go on until `done` or for so long; `every` is called about each 20 ms. False: time ran out."""
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() >= deadline:
                return False
            self.after(0.02, every)
            self.turn()
        return True

    def after(self, seconds: float, action: Action) -> None:
        self._timers.append((time.monotonic() + seconds, action))
        self._timers.sort(key=lambda timer: timer[0])

    def every(self, seconds: float, action: Callable[[], bool | None]) -> None:
        """Call `action` again and again, after it raised, too; it ends where it returns True."""

        def again() -> None:
            over: bool | None = False
            try:
                over = action()
            finally:
                if not over:
                    self.after(seconds, again)

        self.after(seconds, again)

    def watch(self, thing: int, action: Action) -> None:
        """Call `action` whenever `thing`, a descriptor, is readable."""
        self.selector.register(thing, selectors.EVENT_READ, action)

    def forget(self, thing: object) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(thing)  # type: ignore[arg-type]

    def catch(self, signals: Iterable[int], action: Callable[[int], None]) -> None:
        """Each signal becomes a turn of the loop; nothing happens inside a handler."""
        reader = signal_pipe(signals)

        def deliver() -> None:
            for number in os.read(reader, 64):
                action(number)

        self.watch(reader, deliver)
