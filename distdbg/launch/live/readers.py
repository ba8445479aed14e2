"""Wait at the end of a launch for the reader of its output, as any program does that prints to a pipe or a terminal.

The job is over by then and its report is written: the wait costs the user nothing but this process.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

from distdbg.launch.live.console import Console
from distdbg.launch.live.view import LiveView, PlainView
from distdbg.terminal import is_behind

WAITS = (
    "the job has ended, and the reader of its output does not read: distdbg waits for it. "
    "Ctrl-C ends the wait; `distdbg logs` has all of the output"
)
DISK = "the run directory does not answer: the rest of the output is not shown"
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def show_rest(console: Console, view: LiveView | PlainView) -> None:
    """Show what the ranks printed last, for as long as it moves; else say what it waits for."""
    if not console.close(show=view.tick):
        view.say(WAITS if console.waits_for_reader else DISK)


def wait_for_readers(console: Console, view: LiveView | PlainView, ended: Callable[[], bool] | None = None) -> None:
    """Wait until standard output and standard error have been read, or their reader has gone, or `ended()`.

    Without `ended` a signal ends the wait, and the exit code stays the job's.
    """
    signals: list[int] = []
    if ended is None:
        for number in _ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:  # by nohup
                signal.signal(number, lambda number, _frame: signals.append(number))
    over = ended or (lambda: bool(signals))
    console.finish(over, view.print_lines)
    while is_behind(sys.stderr, within_s=0.1) and not over():
        pass
