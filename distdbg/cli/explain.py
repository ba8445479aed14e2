"""`distdbg explain`: the verdict from what was collected: a run, a dump, recorder dumps, stacks, logs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from distdbg.cli._exits import JUDGES, exits
from distdbg.cli._json import json_option
from distdbg.cli._output import OutputFile
from distdbg.errors import UsageError


@exits(JUDGES)
@click.command("explain")
@click.argument("what", nargs=-1, required=True, metavar="DIR|FILES…", type=click.Path(path_type=Path, exists=True))
@json_option("Print the report as one JSON object (distdbg.report/1).")
@click.option("--html", "html_path", type=OutputFile(), metavar="PATH",
              help="Write the HTML page to PATH as well.")  # fmt: skip
@click.option("--why", is_flag=True,
              help="Print what each rule of the diagnosis read and found: for its developers.")  # fmt: skip
def command(what: tuple[Path, ...], as_json: bool, html_path: Path | None, why: bool) -> None:
    """Say why a job hung or died, from files, wherever they were collected.

    A run directory; a dump that `distdbg hang-dump` took; or others' files in any mixture, told apart by what is in
    them: flight-recorder dumps (pickle or JSON), `py-spy dump` (text or JSON), torchrun's and ranks' logs. Which rank
    a file is of stands at the end of its name (nccl_trace_rank_3, host7_12) or behind "rank" in it. Nothing that is
    read can execute anything, and torch is not needed.
    """
    from distdbg.cli import _answer
    from distdbg.collect.runs.explaining import load
    from distdbg.diagnosis.verdict import build_report

    if why and as_json:
        raise UsageError("--why and --json exclude each other", "Leave out one of them.")
    evidence = load(what)
    report = build_report(evidence)
    if html_path is not None:
        _answer.write_page(html_path, report, evidence)
    _answer.show(report, evidence, as_json=as_json)
    if why:
        from distdbg.diagnosis.why import trace
        from distdbg.report.text.why_text import why_text

        click.echo(f"\n{why_text(trace(evidence), report)}")
    sys.exit(_answer.exit_code(report))
