"""Ending a batch job: gently through its agents where they run, through Slurm where they do not yet."""

from __future__ import annotations

from typing import Literal

from distdbg.errors import DistdbgError, NothingToAnalyse
from distdbg.launch.backends.slurm import commands
from distdbg.launch.backends.slurm.commands import JobState
from distdbg.launch.io.journal import note
from distdbg.launch.live.cancelling import ask_to_end, who
from distdbg.protocol.launcher_events import Cancelled, Finished
from distdbg.rundir import RunDir

#: What a job that never ran is said to have ended with: as if by SIGTERM.
_CODE = 143


def cancel_run(run: RunDir, number: int) -> str:
    """How it was asked, in words. Raises DistdbgError."""
    state = commands.job_state(number)
    if state is None:
        raise NothingToAnalyse(f"Slurm does not know job {number} any more", "Nothing was asked of it.")
    if cancel_job(run, number, state) == "agents":
        return f"asked {run.id} to end"
    if state.waits:  # nobody else will ever write its end
        note(run, Cancelled(by=who()))
        note(run, Finished(exit_code=_CODE))
    return f"cancelled Slurm job {number}"


def is_over(number: int) -> bool:
    """Whether Slurm says so; a controller that does not answer says nothing."""
    try:
        state = commands.job_state(number)
    except DistdbgError:
        return False
    return state is None or state.over


def cancel_job(
    run: RunDir, number: int, state: JobState | None, *, at_once: bool = False
) -> Literal["agents", "slurm"]:
    """Whom it was asked of. `at_once`: Slurm, and the batch script too. Raises DistdbgError."""
    if state is not None and state.over:
        raise NothingToAnalyse(f"Slurm job {number} has ended already: {state.state}", "Nothing was asked of it.")
    if not at_once and state is not None and not state.waits and run.attempts():
        ask_to_end(run)
        return "agents"
    commands.cancel(number, full=at_once)
    return "slurm"
