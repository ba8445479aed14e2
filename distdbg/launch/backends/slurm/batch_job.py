"""A batch job: followed through squeue, ended through its agents, or through Slurm before these run."""

from __future__ import annotations

import threading
import time
from typing import Literal

from distdbg.errors import EXIT_USAGE, DistdbgError, NothingToAnalyse
from distdbg.launch.backends.interface import SubmittedJob
from distdbg.launch.backends.slurm import commands
from distdbg.launch.backends.slurm.commands import JobState, SlurmSilent
from distdbg.launch.io.control import ask_to_end, who
from distdbg.launch.io.journal import note
from distdbg.launch.live.follow import JobStanding
from distdbg.protocol.launcher_events import Cancelled, Finished
from distdbg.rundir import RunDir

#: What a job that never ran is said to have ended with: as if by SIGTERM.
_CODE = 143
#: A controller serves thousands: it is asked often while something is about to happen, and seldom else.
_SOON_S, _LATER_S, _LONG_S = 1.0, 5.0, 15.0
#: The launch has written its end, and Slurm has not said that the job is over: it is waited for so long.
_LATE_S = 20.0
_CODES = {"TIMEOUT": 143, "CANCELLED": 143, "DEADLINE": 143, "PREEMPTED": 143, "OUT_OF_MEMORY": 137, "COMPLETED": 0}
#: Slurm's own: signal 53 where a node cannot open the batch script's output.
_NO_OUTPUT = 128 + 53
_REASONS = {
    "Resources": "the nodes are busy",
    "Priority": "other jobs come first",
    "BeginTime": "its time to begin has not come; after a requeue that is two minutes",
    "Dependency": "it depends on another job",
    "JobHeldUser": "it is held by its user; `scontrol release` lets it go",
    "JobHeldAdmin": "it is held by an administrator",
    "PartitionConfig": "the partition can never run it so: too many nodes, or not its kind",
    "PartitionNodeLimit": "the partition does not allow so many nodes",
    "PartitionTimeLimit": "the partition does not allow so long a time limit",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
    "NodeDown": "a node that it needs is down",
    "ReqNodeNotAvail": "nodes that it needs are down or reserved",
    "BadConstraints": "no node has what it asks for",
    "InvalidAccount": "the account is not valid",
    "InvalidQOS": "the quality of service is not valid",
    "Licenses": "licences are taken",
    "Reservation": "its reservation has not begun",
    "launch failed requeued held": "its start failed on the nodes, and Slurm holds it",
}


class BatchJob(SubmittedJob):
    """The job of a run that was submitted to Slurm."""

    def __init__(self, run: RunDir, number: int) -> None:
        record = run.read_slurm()
        size = record.get("world_size")
        self.name = f"Slurm job {number}"
        self.show_ranks = str(record.get("show_ranks", "0"))
        self.world_size = size if isinstance(size, int) else None
        self._run = run
        self._number = number

    def follow(self) -> SlurmJob:
        return SlurmJob(self._run, self._number)

    def cancel(self) -> str:
        state = commands.job_state(self._number)
        if state is None:
            raise NothingToAnalyse(f"Slurm does not know job {self._number} any more", "Nothing was asked of it.")
        if cancel_job(self._run, self._number, state) == "agents":
            return f"asked {self._run.id} to end"
        if state.waits:  # nobody else will ever write its end
            note(self._run, Cancelled(by=who()))
            note(self._run, Finished(exit_code=_CODE))
        return f"cancelled Slurm job {self._number}"

    def is_over(self) -> bool:
        try:
            state = commands.job_state(self._number)
        except DistdbgError:
            return False
        return state is None or state.over


def cancel_job(
    run: RunDir, number: int, state: JobState | None, *, at_once: bool = False
) -> Literal["agents", "slurm"]:
    """Cancel the job through its agents or Slurm, and return which. `at_once`: through Slurm, including the batch
    script. Raises DistdbgError."""
    if state is not None and state.over:
        raise NothingToAnalyse(f"Slurm job {number} has ended already: {state.state}", "Nothing was asked of it.")
    if not at_once and state is not None and not state.waits and run.attempts():
        ask_to_end(run)
        return "agents"
    commands.cancel(number, full=at_once)
    return "slurm"


class SlurmJob:
    """A `Job` to follow (launch/live/follow.py)."""

    may_cancel = True

    def __init__(self, run: RunDir, number: int) -> None:
        self.name = f"Slurm job {number}"
        self._run = run
        self._number = number
        self._requeues = bool(run.read_slurm().get("max_requeues"))
        self._state: JobState | None = None
        self._asked = False
        self._gone = False
        self._silent = False
        self._trouble = ""
        self._finished_at: float | None = None
        self._changed_at = time.monotonic()
        self._code: int | None = None
        self._cancelled = False
        self._stop = threading.Event()
        threading.Thread(target=self._work, name="squeue", daemon=True).start()

    def standing(self, *, finished: bool) -> JobStanding:
        self._finished_at = (self._finished_at or time.monotonic()) if finished else None
        late = self._finished_at is not None and time.monotonic() - self._finished_at > _LATE_S
        if self._gone or (late and (self._silent or self._trouble)):
            return JobStanding("", over=True, code=self._code)
        state = self._state
        if state is None or self._silent or self._trouble:
            return JobStanding(self._trouble and f"{self._trouble}; the run's directory is followed")
        if state.over or (finished and state.state == "COMPLETING" and (late or not self._requeues)):
            if self._code == _NO_OUTPUT:
                return JobStanding(
                    f"{self.name} ended at once: {state.nodes} could not open {self._run.batch_log}, and so does not "
                    "see the run directory, or may not write it. Put it on a file system that all nodes share: "
                    "--run-dir, or submit from a shared folder",
                    over=True,
                    code=EXIT_USAGE,
                )
            words = "" if finished else f"{self.name} ended: {state.state}"
            return JobStanding(words, over=True, code=self._code)
        where = f" runs on {state.nodes}" if state.state == "RUNNING" else f": {state.state.lower()}"
        words = f" waits{because(state)}" if state.waits else where
        return JobStanding("" if state.state == "COMPLETING" else f"{self.name}{words}")

    def cancel(self) -> None:
        cancel_job(self._run, self._number, self._state, at_once=self._cancelled)
        self._cancelled = True

    def close(self) -> None:
        self._stop.set()

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                self._take(commands.job_state(self._number))
                self._silent, self._trouble = False, ""
            except SlurmSilent:
                self._silent, self._trouble = True, "Slurm's controller does not answer"
            except DistdbgError as error:
                self._trouble = error.message
            self._stop.wait(self._pause())

    def _take(self, state: JobState | None) -> None:
        if state is None or state.over:
            self._code = commands.exit_code(self._number) if state else None
            if state and not self._code:
                self._code = _CODES.get(state.state, self._code)
        if state is None:
            self._gone = True
        elif self._state is None or (state.state, state.reason) != (self._state.state, self._state.reason):
            self._changed_at = time.monotonic()
            self._state = state

    def _pause(self) -> float:
        if self._finished_at is not None and not (self._state and self._state.waits):
            return _SOON_S / 2
        lasted = time.monotonic() - self._changed_at
        return _SOON_S if lasted < 30 else _LATER_S if lasted < 600 else _LONG_S


def because(state: JobState) -> str:
    """`: the nodes are busy (Resources), expected to start at 14:32`."""
    words = next((text for name, text in _REASONS.items() if state.reason.startswith(name)), "")
    reason = f"{words} ({state.reason})" if words else state.reason
    when = ""
    if state.start is not None and state.start > time.time():
        day = "" if state.start - time.time() < 43200 else "%a %d %b, "
        when = f", expected to start at {time.strftime(f'{day}%H:%M', time.localtime(state.start))}"
    return f": {reason}{when}" if reason else when.replace(",", ":", 1)
