"""`distdbg cancel`: end a run gently, from any terminal that can write its directory."""

from __future__ import annotations

import getpass
import os
import socket
import time

import click

from distdbg.collect.run_status import RunStatus, run_status
from distdbg.errors import DistdbgError, NothingToAnalyse, Refused
from distdbg.rundir import RunDir, find_run_dir

_LOOK_EVERY_S = 0.2


@click.command("cancel")
@click.argument("run", required=False)
@click.option("--wait/--no-wait", default=True, help="Wait until the run has ended (the default).")
@click.option("--timeout", type=click.FloatRange(min=0), default=120.0, show_default=True, help="Seconds to wait.")
def command(run: str | None, wait: bool, timeout: float) -> None:
    """End a run: its ranks get SIGTERM, and SIGKILL after the grace period, as with Ctrl-C in its terminal.

    RUN is a run directory, an id or a part of one; without it the newest run of this folder.
    """
    found = find_run_dir(run)
    status = run_status(found)
    if status.live is False:
        raise NothingToAnalyse(f"{found.id} has ended already: {_how(status)}", "Nothing was asked of it.")
    _ask(found)
    click.echo(f"asked {found.id} to end")
    if wait:
        _wait(found, timeout)


def _ask(run: RunDir) -> None:
    try:
        run.ask({"request": "cancel", "by": f"cancelled by {_user()}@{socket.gethostname()} (pid {os.getpid()})"})
    except OSError as error:
        raise Refused(
            f"{str(run.control)!r} cannot be written: {error.strerror}", "Cancel it as the user who launched it."
        ) from None


def _wait(run: RunDir, timeout: float) -> None:
    """Until the run has ended; says how many ranks have, each time that changes."""
    deadline = time.monotonic() + timeout
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
        if time.monotonic() > deadline:
            raise DistdbgError(
                f"{run.id} has not ended within {timeout:g} s; it stays asked to",
                f"Wait longer with `distdbg cancel {run.id}`; `distdbg runs` says how it stands.",
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


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user without a name
        return str(os.getuid())
