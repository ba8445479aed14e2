"""The interface of a backend: how the agents of a job get onto its nodes. Only `place` and `nodes` have no default.

A package brings a backend by an entry point of the group `distdbg.backends` that names a subclass of Backend.
"""

from __future__ import annotations

import os
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from distdbg.errors import DistdbgError, NothingToAnalyse, ToolMissing, UsageError

if TYPE_CHECKING:
    from distdbg.launch.backends.nodes import AttemptStart, Nodes
    from distdbg.launch.live.follow import Job
    from distdbg.launch.plan.job import Plan
    from distdbg.launch.plan.place import Location
    from distdbg.launch.plan.topology import MachineFacts
    from distdbg.launch.watch.requested_dump import DumpOptions, Say
    from distdbg.model import Unknown
    from distdbg.rundir import RunDir
    from distdbg.settings import JobSettings


_PROBE = Path(__file__).resolve().parents[2] / "collect" / "preflight" / "probe.py"


@dataclass(frozen=True)
class ProbeCommand:
    """One process here that runs a probe of a preflight on each of `names`; where a scheduler chooses the nodes, on
    `count` of them, for which it may wait `wait_s` seconds."""

    names: tuple[str, ...]
    count: int
    argv: tuple[str, ...]
    wait_s: float = 0.0


@dataclass(frozen=True)
class ProbeOptions:
    """What a preflight was asked for: `folder` is where runs go, `token` a file in it, `port` 0 for any."""

    nodes: int | None
    hosts: tuple[str, ...]
    folder: Path
    token: str = ""
    port: int = 0
    ssh_options: tuple[str, ...] = ()

    def command(self, name: str | None, port: int) -> tuple[str, ...]:
        """A probe's command line on the node `name`; None where the probe finds its name itself."""
        words = [sys.executable, str(_PROBE), "--folder", os.fspath(self.folder), "--port", str(port)]
        words += ["--name", name] if name else []
        return (*words, *(["--token", self.token] if self.token else []))


@dataclass(frozen=True)
class Claim:
    """Whether a backend takes a job of `--on auto`. `note` is shown to the user in both cases."""

    takes: bool
    note: str = ""


@dataclass(frozen=True)
class Placed:
    """Where a job runs, its settings with the number of nodes that it has there, and notes for the user.

    `place.on` names the backend that starts the agents: it may be another one.
    """

    place: Location
    settings: JobSettings
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Submission:
    """A job that is in a queue now: its run, its id there, and notes for the user."""

    run: RunDir
    job_id: str
    notes: Sequence[str] = ()


class SubmittedJob(ABC):
    """The job of a run that was submitted. `name` begins sentences; `show_ranks` is what its launch asked for."""

    name: str
    show_ranks: str = "0"
    world_size: int | None = None

    @abstractmethod
    def follow(self) -> Job:
        """What `distdbg attach` follows."""

    @abstractmethod
    def cancel(self) -> str:
        """Ask for its end; a sentence that says how. Raises DistdbgError."""

    @abstractmethod
    def is_over(self) -> bool:
        """False where the scheduler does not answer."""


class RunningJob(ABC):
    """A running job, started by any launcher, known by its id. `name` becomes part of a folder's name."""

    @property
    @abstractmethod
    def name(self) -> str: ...

    @abstractmethod
    def dump(self, folder: Path, options: DumpOptions, say: Say) -> list[Unknown]:
        """Into `folder`, which exists; what could not be collected. Raises NothingToAnalyse."""


class Backend(ABC):
    """`order`: with --on auto the smallest is asked first. `where` ends the sentence "this job runs …". `tool` is the
    program that it needs on PATH. `one_machine`: all its nodes are this machine. `takes_hosts`: --hosts is for it."""

    name: ClassVar[str]
    order: ClassVar[int] = 50
    where: ClassVar[str] = "elsewhere"
    tool: ClassVar[str] = ""
    one_machine: ClassVar[bool] = False
    takes_hosts: ClassVar[bool] = False

    def need_tool(self) -> None:
        """Raise ToolMissing where the program that the backend needs is not installed."""
        if self.tool and shutil.which(self.tool) is None:
            raise ToolMissing(
                f"{self.tool} is not on PATH",
                f"Install it, or look from a machine that has it, to use --on {self.name}.",
            )

    # -- launch: which backend, on which nodes ----------------------------------------------------------------

    def claims(self, settings: JobSettings, environ: Mapping[str, str]) -> Claim:  # noqa: ARG002
        """Whether a job of `--on auto` is for this backend."""
        return Claim(takes=False)

    def submits(self, settings: JobSettings, environ: Mapping[str, str]) -> bool:  # noqa: ARG002
        """Whether the job goes into a queue (`submit`), and does not run from here (`place`, `nodes`)."""
        return False

    def unused(self, settings: JobSettings, environ: Mapping[str, str]) -> str:  # noqa: ARG002
        """A note on the options of this backend that have no effect for a job that is not submitted."""
        return ""

    @abstractmethod
    def place(self, settings: JobSettings, environ: Mapping[str, str], host: str) -> Placed:
        """`host` is this machine's name. Raises UsageError."""

    def check_place(self, settings: JobSettings, place: Location, where: str) -> None:  # noqa: B027
        """Raise UsageError where this backend's options cannot be met on `place`, which may be another backend's."""

    def machine(
        self,
        place: Location,  # noqa: ARG002
        settings: JobSettings,  # noqa: ARG002
        environ: Mapping[str, str],  # noqa: ARG002
        here: MachineFacts,
    ) -> tuple[MachineFacts, list[str]]:
        """One node of the place, and notes for the user. `here` is this machine."""
        return here, []

    # -- launch: from a plan to agents, or to a queue ----------------------------------------------------------

    @abstractmethod
    def nodes(self, start: AttemptStart) -> Nodes:
        """The agents of one attempt, not started yet: its `start` starts them, and raises CannotStart."""

    def dry_run(self, plan: Plan) -> str:
        """The plan as shell."""
        from distdbg.launch.plan.dry_run import render_dry_run

        if plan.place.remote:
            raise UsageError(f"--dry-run: the backend {self.name} does not print its jobs as shell", "Leave it out.")
        return render_dry_run(plan)

    def submit(self, settings: JobSettings) -> Submission:  # noqa: ARG002
        """Raises UsageError for everything that keeps the job out of the queue."""
        raise UsageError(f"the backend {self.name} submits no jobs", "Name another with --on.")

    def describe(self, settings: JobSettings) -> str:  # noqa: ARG002
        """What `submit` would submit, as text."""
        raise UsageError(f"the backend {self.name} submits no jobs", "Name another with --on.")

    # -- jobs that exist ---------------------------------------------------------------------------------------

    def submitted(self, run: RunDir) -> SubmittedJob | None:  # noqa: ARG002
        """None where this backend has not submitted the run."""
        return None

    def running(self, job_id: str) -> RunningJob:
        """A running job for `distdbg hang-dump`. Raises NothingToAnalyse, UsageError, ToolMissing."""
        raise NothingToAnalyse(f"the backend {self.name} finds no job by its id ({job_id})", "Name its run.")

    # -- preflight ---------------------------------------------------------------------------------------------

    def claims_probes(self, options: ProbeOptions) -> bool:  # noqa: ARG002
        """Whether a preflight of `--on auto` is for this backend."""
        return False

    def probes(self, options: ProbeOptions) -> tuple[ProbeCommand, ...]:  # noqa: ARG002
        """The command lines that start a probe on each node. Raises UsageError, ToolMissing."""
        raise UsageError(f"the backend {self.name} has no preflight", "Name another with --on.")

    def unfold(self, hosts: str) -> list[str]:
        """Names of the nodes from what a probe has found in its environment. Raises ValueError."""
        return hosts.split(",") if hosts else []

    def no_nodes(self, said: str) -> DistdbgError:
        """What to raise where no probe has answered; `said` is what the command lines printed, if anything."""
        return NothingToAnalyse(f"{self.name} gave no nodes: {said or 'nothing was said'}", "Look at its state.")
