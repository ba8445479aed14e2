"""The verdict of a run that a launch shows: while the job hangs, and at its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from distdbg.rundir import RunDir

if TYPE_CHECKING:
    from distdbg.model import Report


def explain(run: RunDir) -> tuple[str, Report]:
    """Build and write the report of what the run directory holds now; as text for the terminal, and itself.

    A disk that takes no report takes nothing from the verdict.
    """
    from distdbg.collect.report_files import write_report
    from distdbg.collect.run_evidence import load_evidence
    from distdbg.collect.run_profiles import with_profiles
    from distdbg.collect.run_snapshots import with_snapshots
    from distdbg.report.text import render_text
    from distdbg.report.verdict import build_report

    evidence = with_profiles(with_snapshots(load_evidence(run), run), run)
    report = build_report(evidence)
    text = render_text(report, color=sys.stderr.isatty())
    try:
        write_report(run, report, evidence)
    except OSError as error:
        text += f"\ndistdbg: the report could not be written, this is all of it: {error.strerror or error}"
    return text, report


def tell_finding(command: str, report_json: Path) -> None:
    """--on-finding: the shell command gets the report on standard input."""
    try:
        stdin = report_json.open("rb")
    except OSError as error:
        os.write(2, f"distdbg: --on-finding {command!r} was not called: {error}\n".encode())
        return
    with stdin:
        done = subprocess.run(command, shell=True, stdin=stdin, check=False)
    if done.returncode:
        os.write(2, f"distdbg: --on-finding {command!r} ended with exit code {done.returncode}\n".encode())
