"""The `slurm` backend: the nodes of an allocation, by one srun; without an allocation the job is submitted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from distdbg.errors import NothingToAnalyse, UsageError
from distdbg.launch.backends.interface import (
    Backend,
    Claim,
    Placed,
    ProbeCommand,
    ProbeOptions,
    RunningJob,
    Submission,
    SubmittedJob,
)

if TYPE_CHECKING:
    from distdbg.launch.backends.nodes import AttemptStart
    from distdbg.launch.backends.remote_nodes import RemoteNodes
    from distdbg.launch.plan.job import Plan
    from distdbg.launch.plan.place import Location
    from distdbg.launch.plan.topology import MachineFacts
    from distdbg.protocol.message import Event
    from distdbg.rundir import RunDir
    from distdbg.settings import JobSettings

#: Beside whatever step holds the node's CPUs, memory and GPUs; without --overlap srun would wait for it in silence.
_BESIDE = ("--overlap", "--mem=0", "--cpu-bind=none", "--mpi=none", "--quiet")
#: Outside an allocation: a preflight must not wait in a queue.
_WAIT_S = 20
_TRY_THE_IMAGE = (
    "Try the image by hand: srun --container-image=IMAGE {python} -c 'import torch'. --container-python names another "
    "interpreter, --slurm container-mounts=… what else it needs."
)


class SlurmBackend(Backend):
    name = "slurm"
    order = 20
    where = "in a Slurm allocation"
    tool = "srun"

    def claims(self, settings: JobSettings, environ: Mapping[str, str]) -> Claim:
        from distdbg.launch.backends.slurm import commands
        from distdbg.launch.backends.slurm.allocation import claim

        return claim(settings, environ, commands.answers)

    def submits(self, settings: JobSettings, environ: Mapping[str, str]) -> bool:  # noqa: ARG002
        from distdbg.launch.backends.slurm.allocation import allocation_of

        return allocation_of(environ) is None

    def unused(self, settings: JobSettings, environ: Mapping[str, str]) -> str:
        from distdbg.launch.backends.slurm.allocation import unused_options

        return unused_options(settings, environ)

    def place(self, settings: JobSettings, environ: Mapping[str, str], host: str) -> Placed:
        from distdbg.launch.backends.slurm.allocation import place_in_allocation

        return place_in_allocation(settings, environ, host)

    def check_place(self, settings: JobSettings, place: Location, where: str) -> None:
        from distdbg.launch.backends.slurm.allocation import check_container

        check_container(settings, place, where)

    def machine(
        self, place: Location, settings: JobSettings, environ: Mapping[str, str], here: MachineFacts
    ) -> tuple[MachineFacts, list[str]]:
        from distdbg.launch.backends.slurm import commands
        from distdbg.launch.backends.slurm.allocation import node_facts

        notes: list[str] = []

        def gpus_of(job: str) -> int | None:
            """Asked of the controller where the number of ranks follows from it."""
            if settings.nproc_per_node not in ("auto", "gpu"):
                return None
            found = commands.gpus_of(job)
            if found is None:
                notes.append("Slurm does not say how many GPUs a node has: --nproc-per-node N does")
            return found

        return node_facts(place, environ, here, gpus_of), notes

    def nodes(self, start: AttemptStart) -> RemoteNodes:
        """srun brings the whole environment along."""
        from distdbg.launch.backends.carriers import Carrier, agent_command
        from distdbg.launch.backends.remote_nodes import RemoteNodes
        from distdbg.launch.backends.slurm.step import container_options, step_environment, step_options

        place, run, own = start.plan.place, start.run, start.own
        inside: list[str] = []
        if place.container is not None:  # a node sees in it what its agent writes to
            figures = [Path(own[own.index("--prom-dir") + 1])] if "--prom-dir" in own else []
            inside = container_options(place.container, run.path, *figures)
        argv = [*step_options(place.hosts, inside), *agent_command(run, "SLURM_PROCID", place.python)]
        log = run.carrier_log("srun") if start.plan.capture else None
        step = Carrier(argv, range(len(place.hosts)), place.hosts, step_environment(os.environ), log)
        if place.container is not None:
            step = replace(step, advice=_TRY_THE_IMAGE.format(python=place.python))
        return RemoteNodes(start, [step], {}, _events)

    def dry_run(self, plan: Plan) -> str:
        from distdbg.launch.backends.slurm.step import render_step

        return render_step(plan)

    def submit(self, settings: JobSettings) -> Submission:
        from distdbg.launch.backends.slurm.batch import notes
        from distdbg.launch.backends.slurm.submit import submit

        run = submit(settings)
        number = run.read_slurm().get("job_id")
        said = f"Slurm job {number} is submitted, everything about it in {os.path.relpath(run.path)}"
        return Submission(run, str(number), [said, *notes(settings)])

    def describe(self, settings: JobSettings) -> str:
        from distdbg.launch.backends.slurm.submit import describe

        return describe(settings)

    def submitted(self, run: RunDir) -> SubmittedJob | None:
        number = run.slurm_job
        if number is None:
            return None
        from distdbg.launch.backends.slurm.batch_job import BatchJob

        return BatchJob(run, number)

    def running(self, job_id: str) -> RunningJob:
        from distdbg.launch.backends.slurm.dump import find_slurm_job

        return find_slurm_job(job_id)

    def claims_probes(self, options: ProbeOptions) -> bool:
        """Within an allocation, and where several nodes are asked for."""
        return ("SLURM_JOB_ID" in os.environ or (options.nodes or 1) > 1) and shutil.which("srun") is not None

    def probes(self, options: ProbeOptions) -> tuple[ProbeCommand, ...]:
        """On the nodes of this allocation, or on an allocation of its own."""
        self.need_tool()
        if "SLURM_JOB_ID" not in os.environ:
            # One task a node. Partition and account come from SLURM_PARTITION, SLURM_ACCOUNT.
            count = options.nodes or 1
            asked = (f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", f"--immediate={_WAIT_S}")
            argv = ("srun", *asked, "--job-name=distdbg-preflight", "--mpi=none", *options.command(None, options.port))
            return (ProbeCommand((), count, argv, _WAIT_S),)
        folded = os.environ.get("SLURM_JOB_NODELIST", "")
        try:
            names = self.unfold(folded)
        except ValueError as error:
            raise UsageError(f"SLURM_JOB_NODELIST={folded!r}: {error}", "Is this an allocation of Slurm's?") from None
        if not names:
            raise UsageError(
                "SLURM_JOB_ID is set, and SLURM_JOB_NODELIST names no node", "Is this an allocation of Slurm's?"
            )
        if options.nodes is not None and options.nodes > len(names):
            raise UsageError(f"--nodes is {options.nodes}, and this allocation has {len(names)}", "Leave --nodes out.")
        # One step a node: of several nodes in one step, a dead one would silence all.
        step = ("srun", "--nodes=1", "--ntasks=1")
        return tuple(
            ProbeCommand((name,), 1, (*step, f"--nodelist={name}", *_BESIDE, *options.command(name, options.port)))
            for name in names[: options.nodes]
        )

    def unfold(self, hosts: str) -> list[str]:
        from distdbg.launch.backends.slurm.hostlist import expand

        return list(expand(hosts))

    def no_nodes(self, said: str) -> NothingToAnalyse:
        return NothingToAnalyse(
            f"Slurm gave no nodes: {said or 'srun said nothing'}", "`sinfo` shows which there are; or ask for fewer."
        )


def _events(said: Sequence[str]) -> Iterator[Event]:
    """What srun has said of memory, and of nodes that have failed."""
    from distdbg.evidence.logs.slurm import failed_nodes, memory_lines
    from distdbg.protocol.launcher_events import SlurmMemory, SlurmNodeFailure

    if lines := [line for text in said for line in memory_lines(text)]:
        yield SlurmMemory(lines=lines)
    if failed := [node for text in said for node in failed_nodes(text)]:
        yield SlurmNodeFailure(hosts=failed)
