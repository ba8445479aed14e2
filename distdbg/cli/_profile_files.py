"""What `distdbg profile FILE…` shows of traces, whoever wrote them: the verdict, and where a step's time goes."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import click

from distdbg.cli import _answer


def show(files: list[Path], as_json: bool) -> None:
    """Ends the command: 0 nothing of severity error, 3 no trace among them, 5 none that can be read."""
    from distdbg.collect.files.trace_files import read_traces
    from distdbg.report.json_form import as_json as plain
    from distdbg.report.profile_json import profile_plain
    from distdbg.report.profile_report import profile_report
    from distdbg.report.text.profile_text import profile_text
    from distdbg.report.text.report import render_text

    say = _answer.progress()
    profiles, unread = read_traces(files, say)
    say("")
    report = profile_report(profiles, unread)
    if as_json:
        click.echo(json.dumps({**plain(report), "profile": profile_plain(profiles)}, indent=1, allow_nan=False))
    else:
        width, color, _ = _answer.screen()
        if report.findings or report.unknown:
            click.echo(render_text(replace(report, run={}), color=color, width=width) + "\n")
        else:
            click.echo("nothing in these profiles is worth a word: no place costs 5 % of a step that it need not\n")
        click.echo(profile_text(profiles, color=color, width=width))
    sys.exit(_answer.exit_code(report))
