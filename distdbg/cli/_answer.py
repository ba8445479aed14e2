"""What every command that judges does with its report: shows it, writes it, and says by its exit code what it found."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from traceback import extract_tb

import click

from distdbg.cli._json import answered
from distdbg.errors import EXIT_FINDINGS, EXIT_OK, EXIT_UNDECIDED, DistdbgError, EvidenceUnreadable, UsageError
from distdbg.evidence.run import RunEvidence
from distdbg.model import Report
from distdbg.plain_text import one_line
from distdbg.rundir import RunDir
from distdbg.terminal import unguarded
from distdbg.whole_file import write_whole

#: A screen has the verdict too; the page shows the whole tree.
_MOST_TREE_LINES = 24


def contract(report: Report) -> Report:
    """As JSON has it: `run` and `outcome` are null where there is no run."""
    return report if report.run and report.run.get("id") else replace(report, run=None, outcome=None)


def show(report: Report, evidence: RunEvidence, *, as_json: bool) -> None:
    """The verdict, then the picture that it was read from."""
    from distdbg.report.json_form import dumps
    from distdbg.report.text.picture_text import picture_text, report_picture
    from distdbg.report.text.report import render_text

    if as_json:
        click.echo(dumps(contract(report)), nl=False)
        answered()
        return
    width, color, boxes = screen()
    click.echo(render_text(report, color=color, width=width))
    picture = report_picture(report, evidence)
    if picture is not None and picture.tree.ranks:
        text = picture_text(picture, color=color, ascii_only=not boxes, width=width, most_lines=_MOST_TREE_LINES)
        click.echo(f"\n{text}")


def write_page(path: Path, report: Report, evidence: RunEvidence) -> None:
    from distdbg.report.page.html import render_html

    write_whole_page(path, render_html(report, evidence))


def write_whole_page(path: Path, page: bytes | str) -> None:
    try:
        write_whole(path, page, private=False)
    except OSError as error:
        raise UsageError(
            f"the page cannot be written to {str(path)!r}: {error.strerror}", "Name another path."
        ) from None


def screen() -> tuple[int, bool, bool]:
    """Columns, whether in colour, whether with more than ASCII."""
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    return width, sys.stdout.isatty(), "utf" in (sys.stdout.encoding or "").lower()


def exit_code(*reports: Report) -> int:
    if any(finding.severity == "error" for report in reports for finding in report.findings):
        return EXIT_FINDINGS
    return EXIT_UNDECIDED if any(report.undecided for report in reports) else EXIT_OK


def progress(after_s: float = 1.0) -> Callable[[str], None]:
    """Says what is waited for, on a terminal only and once it has lasted; the empty text wipes it."""
    begun, shown = time.monotonic(), ""

    def say(text: str) -> None:
        nonlocal shown
        if not sys.stderr.isatty() or text == shown or (text and time.monotonic() - begun < after_s):
            return
        stream = unguarded(sys.stderr)
        stream.write(f"\r\x1b[K{f'distdbg: {one_line(text)} …' if text else ''}")
        stream.flush()
        shown = text

    return say


@contextmanager
def sense_of(folder: RunDir) -> Iterator[None]:
    """One sentence, not a traceback, if a run's files hold what no reader expects."""
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
