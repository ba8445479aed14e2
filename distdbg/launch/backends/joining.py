"""A launch on the first node of a batch job joins the run directory that the submitter made."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

from distdbg.errors import UsageError
from distdbg.rundir import RunDir
from distdbg.whole_file import open_own

#: Set by the batch script: that directory.
JOIN_RUN = "DISTDBG_JOIN_RUN"


def listen_early() -> None:
    """The batch script ignores Slurm's warning until this process takes it; what is not ignored is passed on."""
    if JOIN_RUN in os.environ:
        signal.signal(signal.SIGUSR1, lambda *_: None)


def joined_run() -> RunDir | None:
    """The run directory that the submitter of a batch job made, None if there is none to join.

    A launch within a rank is a run of its own: it does not see the variable. Raises UsageError if the directory cannot
    be used here.
    """
    path = os.environ.pop(JOIN_RUN, "")
    if not path:
        return None
    run, here = RunDir(Path(path)), socket.gethostname()
    if not run.control.is_file():
        raise UsageError(
            f"the run directory {path!r}, made where the job was submitted, is not to be seen on {here}",
            "Put it on a file system that all nodes share: --run-dir, or submit from a shared folder.",
        )
    try:
        os.close(open_own(run.events, os.O_WRONLY | os.O_APPEND))
    except OSError as error:
        raise UsageError(
            f"the run directory {path!r} cannot be written on {here}: {error.strerror}",
            "Put it on a file system that all nodes may write to.",
        ) from None
    return run
