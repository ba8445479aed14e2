"""`distdbg cancel` (run): end a run gently, from any terminal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from distdbg.cli.epilog import examples, exits
from distdbg.cli.options import SecondsRange, run_argument
from distdbg.collect.runs.run_status import RunStatus, run_status
from distdbg.errors import DistdbgError, NothingToAnalyse
from distdbg.launch.backends import submitted_job
from distdbg.launch.io.control import ask_to_end
from distdbg.rundir import RunDir, find_run_dir

if TYPE_CHECKING:
    from distdbg.launch.backends.interface import SubmittedJob

_LOOK_EVERY_S = 0.2
_ASK_SCHEDULER_EVERY_S = 3.0


@exits(
    {
        0: "it has ended, or was asked to",
        1: "it has not ended in time",
        3: "nothing to end",
        4: "not permitted",
        6: "not asked",
    }
)
@examples("distdbg cancel", "distdbg cancel --no-wait distdbg-runs/latest")
@click.command("cancel")
@run_argument
@click.option("--wait/--no-wait", default=True, help="Wait until the run has ended (the default).")
@click.option("--timeout", type=SecondsRange(min=0), default=120.0, show_default=True, help="Seconds to wait.")
def command(run: str | None, wait: bool, timeout: float) -> None:
    """End a run: its ranks get SIGTERM, and SIGKILL after the grace period, as with Ctrl-C in its terminal.

    A Slurm job that waits in the queue is removed from it.

    RUN is a run directory, an id or a part of one; without it the newest run of this folder.
    """
    found = find_run_dir(run)
    status = run_status(found)
    if status.live is False:
        raise NothingToAnalyse(f"{found.id} has ended already: {_how(status)}", "Nothing was asked of it.")
    job = submitted_job(found)
    if job is None:
        ask_to_end(found)
        click.echo(f"asked {found.id} to end")
    else:
        click.echo(job.cancel())
    if wait:
        _wait(found, job, timeout)


def _wait(run: RunDir, job: SubmittedJob | None, timeout: float) -> None:
    """Wait until the run has ended; print the number of ended ranks each time it changes. `job` is the scheduler's
    id."""
    deadline = time.monotonic() + timeout
    ask_scheduler_at = time.monotonic() + _ASK_SCHEDULER_EVERY_S
    shown = ""
    while True:
        status = run_status(run)
        if status.live is False or status.ended is not None:
            click.echo(f"{run.id} ended: {_how(status)}")
            return
        progress = _progress(run, status)
        if progress != shown:
            shown = progress
            click.echo(progress, err=True)
        if job is not None and time.monotonic() > ask_scheduler_at:
            ask_scheduler_at = time.monotonic() + _ASK_SCHEDULER_EVERY_S
            if job.is_over():
                click.echo(f"{run.id} ended: {job.name} is over")
                return
        if time.monotonic() > deadline:
            raise DistdbgError(
                f"{run.id} has not ended within {timeout:g} s; it stays asked to",
                f"Wait longer with `distdbg cancel {run.id}`; `distdbg runs` shows its state.",
            )
        time.sleep(_LOOK_EVERY_S)


def _progress(run: RunDir, status: RunStatus) -> str:
    attempts = run.attempts()
    ended = sum(rank.exit.exists() for rank in attempts[-1].ranks().values()) if attempts else 0
    return f"{ended} of {status.ranks} ranks have ended"


def _how(status: RunStatus) -> str:
    if status.exit_code is None:
        return f"{status.outcome}, {status.why}" if status.why else status.outcome
    return f"{status.outcome}, exit code {status.exit_code}"
