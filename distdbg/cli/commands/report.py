"""`distdbg report` (diagnose): rebuild the report of a run, and show the verdict."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from distdbg.cli.answer import exit_code, readable, show
from distdbg.cli.epilog import JUDGES, examples, exits
from distdbg.cli.json_answer import json_option
from distdbg.cli.options import html_option, output_option, run_argument
from distdbg.errors import EXIT_REFUSED, EvidenceUnreadable, NothingToAnalyse, UsageError
from distdbg.evidence.run import RunEvidence
from distdbg.model import Report
from distdbg.rundir import RunDir, find_run_dir


@exits({**JUDGES, EXIT_REFUSED: "a secret could be left in the bundle"})
@examples(
    "distdbg report", "distdbg report --html verdict.html distdbg-runs/latest", "distdbg report --bundle ticket.zip"
)
@click.command("report")
@run_argument
@json_option("Print the report as one JSON object (distdbg.report/1).")
@html_option
@output_option("--bundle", "bundle", "archive", "FILE",
               "Write report, logs and dumps, with secrets masked, to FILE: a zip archive.")  # fmt: skip
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Report attempt N; the newest by default.")
def command(run: str | None, as_json: bool, html_path: Path | None, bundle: Path | None, attempt: int | None) -> None:
    """Rebuild the report of RUN from its files, and show it.

    RUN is a run's directory, its id or a part of it; without one, the newest run in ./distdbg-runs. Writes
    report/report.json, report.txt and report.html in the run directory.
    """
    from distdbg.collect.runs.whole_run import load_whole_run
    from distdbg.diagnosis.verdict import build_report
    from distdbg.report.run_document import run_document

    folder = find_run_dir(run)
    with readable(folder):
        evidence = load_whole_run(folder, attempt)
        _refuse_nothing(folder, evidence, attempt)
        report = build_report(evidence)
        if attempt is None:
            _write(folder, report, evidence)
        document = run_document(report, evidence, pictures=html_path is not None, whole=html_path is not None)
        show(document, as_json=as_json, html=html_path)
        if bundle is not None:
            _write_bundle(bundle, folder, report, evidence)
    sys.exit(exit_code(report))


def _write_bundle(path: Path, folder: RunDir, report: Report, evidence: RunEvidence) -> None:
    from distdbg.collect.runs.bundle import refuse_unknown_secrets, write_bundle
    from distdbg.evidence.memory.answer import gib
    from distdbg.whole_file import WholeFile
    from distdbg.wording import counted

    refuse_unknown_secrets(evidence)
    try:
        with WholeFile(path) as file:
            bundle = write_bundle(file, folder, report, evidence)
        size = gib(path.stat().st_size)
    except OSError as error:
        raise UsageError(
            f"the bundle cannot be written to {str(path)!r}: {error.strerror}", "Name another path."
        ) from None
    left_out = f", {len(bundle.left_out)} left out (bundle.json lists them)" if bundle.left_out else ""
    click.echo(
        f"distdbg: {path}: {size}, {counted(bundle.files, 'file')} with secrets masked{left_out}; "
        "read it before you send it",
        err=True,
    )


def _refuse_nothing(folder: RunDir, evidence: RunEvidence, attempt: int | None) -> None:
    if evidence.ranks or evidence.nodes:
        return
    if attempt is not None and (numbers := [str(a.number) for a in folder.attempts()]):
        raise NothingToAnalyse(
            f"the run {folder.id} has no attempt {attempt}", f"It has: {', '.join(numbers)} (1 is the first)."
        )
    unreadable = [u for u in evidence.unknown if u.what.startswith(("job.json", "events.jsonl", "attempts"))]
    if unreadable:
        raise EvidenceUnreadable(
            f"{folder.path}: {unreadable[0].what} cannot be read: {unreadable[0].because}",
            "Check the directory's owner and permissions.",
        )
    raise NothingToAnalyse(
        f"the run {folder.id} has no record of any rank: no agent started torchrun",
        "Look at events.jsonl in its directory, and whether it is still being launched.",
    )


def _write(folder: RunDir, report: Report, evidence: RunEvidence) -> None:
    """Write the report files. A read-only run gets a message that they were not written."""
    from distdbg.collect.runs.report_files import write_report

    try:
        write_report(folder, report, evidence)
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""  # none where the disk was full
        click.echo(f"distdbg: the report files were not written: {error.strerror}{where}", err=True)
