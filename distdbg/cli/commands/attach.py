"""`distdbg attach` (run): follow a run that was started elsewhere, to its end."""

from __future__ import annotations

import sys

import click

from distdbg.cli.epilog import LAUNCHES, examples, exits
from distdbg.cli.options import ranks_of, run_argument
from distdbg.rundir import find_run_dir


@exits(LAUNCHES | {3: "no such run", 4: "not permitted"}, of_job=True)
@examples("distdbg attach", "distdbg attach --show-ranks all distdbg-runs/latest")
@click.command("attach")
@run_argument
@click.option(
    "--show-ranks", metavar="RANKS", help="Ranks whose output is shown: 0-3,8, all or none.  [default: as launched]"
)
def command(run: str | None, show_ranks: str | None) -> None:
    """Follow a run again: its place in the queue, its nodes, its ranks' output, its verdict.

    RUN is a run directory, an id or a part of one; without it the newest run of this folder. Its output is shown from
    the beginning. Ctrl-C asks whether to leave a batch job running or to cancel it. A run that another terminal
    launched keeps running after Ctrl-C: the exit code is 76. For a run that has ended, the verdict is shown.
    """
    from distdbg.launch.attach import attach

    if show_ranks not in (None, "all", "none"):
        ranks_of("--show-ranks", show_ranks)
    sys.exit(attach(find_run_dir(run), show_ranks))
