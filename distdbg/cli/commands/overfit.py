"""`distdbg overfit` (models): check that the training can overfit one batch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from distdbg.cli.commands.launch import LaunchCommand, launch
from distdbg.cli.commands.launch import command as launch_command
from distdbg.cli.epilog import LAUNCHES, examples, exits

#: A healthy loss of one batch has fallen by far more than a tenth by then.
_STEPS = 100


@exits(LAUNCHES | {0: "the loss falls", 3: "not known", 10: "the loss does not fall"}, of_job=True)
@examples("distdbg overfit --nproc-per-node 2 train.py --lr 1e-3", "distdbg overfit --overfit-batch 300 train.py")
@click.command(
    cls=LaunchCommand,
    context_settings=launch_command.context_settings,
    params=launch_command.params,
)
def command(config: Path | None, *, dry_run: bool, detach: bool, program: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401
    """Repeat the first batch of SCRIPT's training for 100 steps (--overfit-batch N: for N), and report whether the loss
    falls, which parameters never get a gradient, and which are in no optimizer.

    The script is not changed, and is ended after these steps; all options are those of `distdbg launch`. The script
    saves its checkpoints as usual: give it another folder if it has an option for that.
    """
    options["overfit_batch"] = options["overfit_batch"] or _STEPS
    code, run = launch(config, dry_run=dry_run, detach=detach, program=program, options=options)
    sys.exit(code or (0 if run is None else _code(run)))


def _code(run: Any) -> int:  # noqa: ANN401
    from distdbg.collect.runs.run_evidence import load_evidence
    from distdbg.diagnosis.verdict import build_report
    from distdbg.errors import EXIT_FINDINGS, EXIT_NOTHING, EXIT_OK

    ids = {finding.id for finding in build_report(load_evidence(run)).findings}
    if "overfit-fails" in ids:
        return EXIT_FINDINGS
    return EXIT_OK if "overfit-learns" in ids and "overfit-unknown" not in ids else EXIT_NOTHING
