"""`distdbg diff` (diagnose): compare two runs: outcome, findings, speed, memory."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from distdbg.cli.epilog import examples, exits
from distdbg.cli.json_answer import json_option
from distdbg.cli.options import html_option


@exits(
    {
        0: "B has no new finding of severity error",
        3: "nothing to analyse",
        4: "not permitted",
        5: "unreadable",
        10: "B has a finding of severity error that A does not have",
    }
)
@examples("distdbg diff baseline bf16", "distdbg diff --html diff.html baseline bf16")
@click.command("diff")
@click.argument("run_a", metavar="RUN_A")
@click.argument("run_b", metavar="RUN_B")
@json_option("Print one JSON object (distdbg.diff/1).")
@html_option
def command(run_a: str, run_b: str, *, as_json: bool, html_path: Path | None) -> None:
    """Say what differs between two runs: outcome, findings, speed, memory, versions, code, command, variables.

    A run is a run's directory, its id or a part of it. The newest attempt of each is compared. Speed differs where
    the middle halves of both runs' step times do not touch, and their medians are 3 % apart.
    """
    from distdbg.cli.answer import readable, screen, write_page
    from distdbg.collect.runs.whole_run import load_whole_run
    from distdbg.diagnosis.verdict import build_report
    from distdbg.errors import EXIT_FINDINGS, EXIT_OK, NothingToAnalyse, UsageError
    from distdbg.report.comparison import as_json as plain
    from distdbg.report.comparison import compare
    from distdbg.report.text.comparison_text import comparison_text
    from distdbg.rundir import find_run_dir

    folders = [find_run_dir(run) for run in (run_a, run_b)]
    if folders[0].path == folders[1].path:
        raise UsageError(f"{run_a!r} and {run_b!r} are the same run", "`distdbg runs` lists the runs of this folder.")
    sides = []
    for folder in folders:
        with readable(folder):
            evidence = load_whole_run(folder)
            if not evidence.ranks:
                raise NothingToAnalyse(f"the run {folder.id} has no record of any rank", "It cannot be compared.")
            sides.append((evidence, build_report(evidence)))
    found = compare(*sides)
    for evidence, _ in sides:
        found = evidence.hidden.mask_all(found)
    if html_path is not None:
        from distdbg.report.page.comparison_page import comparison_page

        write_page(html_path, comparison_page(found, *sides))
    click.echo(json.dumps(plain(found), indent=1) if as_json else comparison_text(found, screen()))
    sys.exit(EXIT_FINDINGS if found.new_errors else EXIT_OK)
