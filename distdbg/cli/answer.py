"""Show the document of a command that judges, write its page, choose its exit code; show its progress until then."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING

import click

from distdbg.cli.json_answer import answered
from distdbg.errors import EXIT_FINDINGS, EXIT_OK, EXIT_UNDECIDED, DistdbgError, EvidenceUnreadable, UsageError
from distdbg.model import Report
from distdbg.plain_text import one_line
from distdbg.rundir import RunDir
from distdbg.terminal import columns, in_colour, unguarded
from distdbg.whole_file import write_whole

if TYPE_CHECKING:
    from rich.progress import Progress

    from distdbg.report.document import Document, Renderer
    from distdbg.report.text.screen import Screen


def show(document: Document, *, as_json: bool, html: Path | None = None) -> None:
    """Print it as text or JSON; with `html`, write its page first."""
    if html is not None:
        from distdbg.report.page.renderer import PageRenderer

        write_page(html, PageRenderer().render(document))
    click.echo(renderer(as_json=as_json).render(document), nl=not as_json)
    if as_json:
        answered()


def renderer(*, as_json: bool = False) -> Renderer:
    """The renderer for standard output."""
    if as_json:
        from distdbg.report.json_form import JsonRenderer

        return JsonRenderer()
    from distdbg.report.text.renderer import TextRenderer

    return TextRenderer(screen())


def write_page(path: Path, page: bytes | str) -> None:
    try:
        write_whole(path, page, private=False)
    except OSError as error:
        raise UsageError(
            f"the page cannot be written to {str(path)!r}: {error.strerror}", "Name another path."
        ) from None


def screen() -> Screen:
    """Standard output: how wide, whether in colour, whether with more than ASCII."""
    from distdbg.report.text.screen import Screen

    ascii_only = "utf" not in (sys.stdout.encoding or "").lower()
    return Screen.of(color=in_colour(sys.stdout), ascii_only=ascii_only, width=columns())


def exit_code(*reports: Report) -> int:
    if any(finding.severity == "error" for report in reports for finding in report.findings):
        return EXIT_FINDINGS
    return EXIT_UNDECIDED if any(report.undecided for report in reports) else EXIT_OK


class Terminated(KeyboardInterrupt):
    """SIGTERM, which Slurm and `timeout` send."""


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM interrupts the block as Ctrl-C does."""

    def end(_number: int, _frame: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def readable(folder: RunDir) -> Iterator[None]:
    """One sentence instead of a traceback where a run's files hold what no reader expects."""
    try:
        yield
    except DistdbgError:
        raise
    except Exception as error:
        place = extract_tb(error.__traceback__)[-1]
        raise EvidenceUnreadable(
            f"no report can be made of {str(folder.path)!r}: a file there holds what distdbg does not understand "
            f"({Path(place.filename).name}:{place.lineno})",
            "Copy the run directory again; if no file is damaged, report this line as an error of distdbg.",
        ) from error


class ProgressBar:
    """Shows how far a command is, on a terminal, if the command takes longer than `after_s`.

    Call it with what the command does now, and with the share of the whole (0 to 1) that is done, if that is known. An
    empty text removes the bar, and so does the end of the command.
    """

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
