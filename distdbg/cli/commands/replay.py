"""`distdbg replay DIR` (diagnose): repeat the forward that made a NaN or an inf."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from distdbg.cli.epilog import examples, exits
from distdbg.cli.json_answer import json_option
from distdbg.cli.options import EvidencePath
from distdbg.errors import UsageError


@exits(
    {
        0: "everything was finite here",
        3: "nothing to replay",
        4: "not permitted, or no torch",
        5: "unreadable",
        6: "the model cannot be built or run here",
        10: "not finite again",
    }
)
@examples(
    "distdbg launch --watch numerics --on-nonfinite dump train.py",
    "distdbg replay distdbg-runs/latest/attempts/1/ranks/00003/nonfinite",
)
@click.command("replay")
@click.argument("folder", metavar="DIR", type=EvidencePath(exists=True, file_okay=False))
@json_option("Print the report as one JSON object (distdbg.report/1).")
def command(folder: Path, as_json: bool) -> None:
    """Run the saved batch through the saved model, and name the first module whose output is not finite.

    DIR is ranks/RRRRR/nonfinite of a run that was launched with --watch numerics --on-nonfinite dump. The model is a
    pickle, and its code is imported and run: use only runs that you trust.
    """
    from distdbg.cli import answer
    from distdbg.launch.replay.apart import replay_apart, replay_report
    from distdbg.report.run_document import run_document

    if not folder.is_dir():
        raise UsageError(f"{str(folder)!r} is no folder", "Name ranks/RRRRR/nonfinite of a run.")
    report = replay_report(replay_apart(folder), str(folder / "about.json"))
    answer.show(run_document(report), as_json=as_json)
    sys.exit(answer.exit_code(report))
