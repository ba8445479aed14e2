"""`distdbg slurm-script` (run): print the batch script that `launch --on slurm` submits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from distdbg.cli.commands.launch import LaunchCommand, read_settings
from distdbg.cli.commands.launch import command as launch
from distdbg.cli.epilog import examples, exits

_NOT_HERE = ("dry_run", "detach")


@exits({0: "done"})
@examples(
    "distdbg slurm-script --nodes 2 --time 4:00:00 train.py",
    "distdbg slurm-script --template my.sbatch train.py > job.sbatch",
)
@click.command(
    cls=LaunchCommand,
    context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]},
    params=[option for option in launch.params if option.name not in _NOT_HERE],
)
def command(config: Path | None, program: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401
    """Print the batch script that `distdbg launch --on slurm` submits with the same options; Slurm is not called.

    The submitted script is in the run directory as batch.sbatch. A script of your own, with `--template`, is a jinja2
    template; the one that ships is slurm/job.sbatch.
    """
    from distdbg.launch.backends import named

    settings, _ = read_settings(program, config, options)
    click.echo(named("slurm").describe(settings), nl=False)
