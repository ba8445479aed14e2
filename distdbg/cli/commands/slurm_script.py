"""`distdbg slurm-script` (run): print the batch script that `launch --on slurm` submits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from distdbg.cli.commands.launch import LaunchCommand, read_settings
from distdbg.cli.commands.launch import command as launch
from distdbg.cli.epilog import examples, exits


@exits({0: "done"})
@examples(
    "distdbg slurm-script --nodes 2 --time 4:00:00 train.py",
    "distdbg slurm-script --template my.sbatch train.py > job.sbatch",
)
@click.command(
    cls=LaunchCommand,
    context_settings=launch.context_settings,
    params=[option for option in launch.params if option.name not in ("dry_run", "detach")],
)
def command(config: Path | None, program: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401
    """Print the batch script that `distdbg launch --on slurm` submits with the same options; Slurm is not called.

    The submitted script is in the run directory as batch.sbatch. A script of your own, with `--template`, is a jinja2
    template; the one that ships is slurm/job.sbatch.
    """
    from distdbg.launch.backends import named

    settings, _ = read_settings(program, config, options)
    click.echo(named("slurm").describe(settings), nl=False)
