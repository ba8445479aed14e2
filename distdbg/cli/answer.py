"""What every command that judges does with its document: shows it, writes its page, and says by its exit code what it
found.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING

import click

from distdbg.cli.json_answer import answered
from distdbg.errors import EXIT_FINDINGS, EXIT_OK, EXIT_UNDECIDED, DistdbgError, EvidenceUnreadable, UsageError
from distdbg.model import Report
from distdbg.rundir import RunDir
from distdbg.whole_file import write_whole

if TYPE_CHECKING:
    from distdbg.cli.progress import ProgressBar
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
    from distdbg.terminal import columns, in_colour

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


def progress(after_s: float = 1.0) -> ProgressBar:
    """Of this command: on a terminal only, and where it takes longer than that."""
    from distdbg.cli.progress import ProgressBar

    return ProgressBar(after_s)


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
