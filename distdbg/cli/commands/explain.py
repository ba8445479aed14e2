"""`distdbg explain` (diagnose): say why a job hung or died, from a run, a dump or logs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from distdbg.cli.epilog import JUDGES, examples, exits
from distdbg.cli.json_answer import json_option
from distdbg.cli.options import EvidencePath, html_option
from distdbg.errors import UsageError


@exits(JUDGES)
@examples(
    "distdbg explain distdbg-runs/latest",
    "distdbg explain nccl_trace_rank_*",
    "distdbg explain --why slurm-4242.out",
)
@click.command("explain")
@click.argument("what", nargs=-1, required=True, metavar="DIR|FILES…", type=EvidencePath(allow_dash=True))
@json_option("Print the report as one JSON object (distdbg.report/1).")
@html_option
@click.option("--why", is_flag=True,
              help="Print what each rule read and found.")  # fmt: skip
def command(what: tuple[Path, ...], as_json: bool, html_path: Path | None, why: bool) -> None:
    """Say why a job hung or died, from collected files.

    DIR is a run directory or a dump of `distdbg hang-dump`. FILES are flight-recorder dumps (pickle or JSON), output of
    `py-spy dump` (text or JSON) and of gdb's `bt`, error files of torchelastic, and logs of any launcher, in any
    mixture: distdbg recognises them by their content. The rank of a file is the number at the end of its name
    (nccl_trace_rank_3, host7_12) or after "rank" in it. No file can execute code, and torch is not needed.
    """
    from distdbg.cli import answer
    from distdbg.collect.runs.explaining import load, named_files

    if why and as_json:
        raise UsageError("--why and --json exclude each other", "Leave out one of them.")
    evidence = load(named_files(what), answer.ProgressBar())
    from distdbg.diagnosis.verdict import build_report  # not before the process that reads the files has ended
    from distdbg.report.run_document import run_document

    report = build_report(evidence)
    page = html_path is not None
    document = run_document(report, evidence, pictures=page or not as_json, whole=page)
    answer.show(document, as_json=as_json, html=html_path)
    if why:
        from distdbg.diagnosis.why import trace
        from distdbg.report.text.why_text import why_text

        click.echo(f"\n{why_text(trace(evidence), report)}")
    sys.exit(answer.exit_code(report))
