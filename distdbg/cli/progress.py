"""Show how far a command is: a bar on a terminal, where the command takes more than a second."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

import click

from distdbg.plain_text import one_line
from distdbg.terminal import unguarded

if TYPE_CHECKING:
    from rich.progress import Progress


class ProgressBar:
    """Call it with what the command does now, and which share of the whole (0 to 1) is done, where that is known; with
    an empty text the bar goes. The end of the command removes it in any case."""

    def __init__(self, after_s: float = 1.0) -> None:
        self._starts_at = time.monotonic() + after_s
        self._lock = threading.RLock()
        self._text, self._share = "", None  # type: str, float | None
        self._bar: Progress | None = None
        self._timer: threading.Timer | None = None
        if (context := click.get_current_context(silent=True)) is not None:
            context.call_on_close(self.stop)

    def __call__(self, text: str, share: float | None = None) -> None:
        if not sys.stderr.isatty():
            return
        with self._lock:
            self._text, self._share = one_line(text), share
            if not text:
                self.stop()
            elif self._bar is not None or time.monotonic() >= self._starts_at:
                self._show()
            elif self._timer is None:  # the command may not call again for long
                self._timer = threading.Timer(self._starts_at - time.monotonic(), self._show)
                self._timer.daemon = True
                self._timer.start()

    def stop(self) -> None:
        with self._lock:
            self._text = ""
            if self._timer is not None:
                self._timer.cancel()
            if self._bar is not None:
                self._bar.stop()
            self._bar = self._timer = None

    def _show(self) -> None:
        with self._lock:
            if not self._text:
                return
            total, done = None if self._share is None else 1.0, self._share or 0.0
            if self._bar is None:
                self._bar = _bar()
                self._bar.add_task(self._text, total=total, completed=done)  # type: ignore[arg-type]
                self._bar.start()
            self._bar.update(self._bar.task_ids[0], description=self._text, total=total, completed=done)


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(file=unguarded(sys.stderr))
    words = TextColumn("distdbg: {task.description}", markup=False)
    return Progress(words, BarColumn(), TaskProgressColumn(), TimeRemainingColumn(), console=console, transient=True)
