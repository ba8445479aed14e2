"""The `slurm` backend: the nodes of an allocation, by one srun; a job that has none is submitted as a batch job."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from distdbg.errors import NothingToAnalyse
from distdbg.launch.backends.interface import Backend, Claim, Placed, RunningJob, Start, Submission, SubmittedJob

if TYPE_CHECKING:
    from distdbg.launch.backends.carriers import Carrier
    from distdbg.launch.backends.probes import ProbeCommand, ProbeOptions
    from distdbg.launch.backends.remote_nodes import RemoteNodes
    from distdbg.launch.backends.slurm.watch import SlurmJob
    from distdbg.launch.plan.job import Plan
    from distdbg.launch.plan.place import Location
    from distdbg.launch.plan.topology import MachineFacts
    from distdbg.protocol.message import Event
    from distdbg.rundir import RunDir
    from distdbg.settings import JobSettings

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
        from distdbg.launch.backends.slurm.choosing import claim

        return claim(settings, environ, commands.answers)

    def submits(self, settings: JobSettings, environ: Mapping[str, str]) -> bool:  # noqa: ARG002
        from distdbg.launch.backends.slurm.allocation import allocation_of

        return allocation_of(environ) is None

    def unused(self, settings: JobSettings, environ: Mapping[str, str]) -> str:
        from distdbg.launch.backends.slurm.choosing import unused_options

        return unused_options(settings, environ)

    def place(self, settings: JobSettings, environ: Mapping[str, str], host: str) -> Placed:
        from distdbg.launch.backends.slurm.place import place_in_allocation

        return place_in_allocation(settings, environ, host)

    def check_place(self, settings: JobSettings, place: Location, where: str) -> None:
        from distdbg.launch.backends.slurm.place import check_container

        check_container(settings, place, where)

    def machine(
        self, place: Location, settings: JobSettings, environ: Mapping[str, str], here: MachineFacts
    ) -> tuple[MachineFacts, list[str]]:
        from distdbg.launch.backends.slurm import commands
        from distdbg.launch.backends.slurm.place import node_facts

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

    def nodes(self, start: Start) -> RemoteNodes:
        """srun brings the whole environment along."""
        from distdbg.launch.backends.remote import remote_nodes

        return remote_nodes(start, [_step(start)], {}, _events)

    def dry_run(self, plan: Plan) -> str:
        from distdbg.launch.backends.slurm.dry_run import render_step

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
        return None if number is None else _BatchJob(run, number)

    def running(self, job_id: str) -> RunningJob:
        from distdbg.launch.backends.slurm.dump import find_slurm_job

        return find_slurm_job(job_id)

    def claims_probes(self, options: ProbeOptions) -> bool:
        from distdbg.launch.backends.slurm.probes import chosen

        return chosen(options)

    def probes(self, options: ProbeOptions) -> tuple[ProbeCommand, ...]:
        from distdbg.launch.backends.probes import need_tool
        from distdbg.launch.backends.slurm.probes import probes

        need_tool(self)
        return probes(options)

    def unfold(self, hosts: str) -> list[str]:
        from distdbg.launch.backends.slurm.hostlist import expand

        return list(expand(hosts))

    def no_nodes(self, said: str) -> NothingToAnalyse:
        return NothingToAnalyse(
            f"Slurm gave no nodes: {said or 'srun said nothing'}", "`sinfo` shows which there are; or ask for fewer."
        )


class _BatchJob(SubmittedJob):
    def __init__(self, run: RunDir, number: int) -> None:
        record = run.read_slurm()
        size = record.get("world_size")
        self.name = f"Slurm job {number}"
        self.show_ranks = str(record.get("show_ranks", "0"))
        self.world_size = size if isinstance(size, int) else None
        self._run = run
        self._number = number

    def follow(self) -> SlurmJob:
        from distdbg.launch.backends.slurm.watch import SlurmJob

        return SlurmJob(self._run, self._number)

    def cancel(self) -> str:
        from distdbg.launch.backends.slurm.cancelling import cancel_run

        return cancel_run(self._run, self._number)

    def is_over(self) -> bool:
        from distdbg.launch.backends.slurm.cancelling import is_over

        return is_over(self._number)


def _step(start: Start) -> Carrier:
    from distdbg.launch.backends.carriers import Carrier
    from distdbg.launch.backends.remote import AGENT
    from distdbg.launch.backends.slurm.step import step_command, step_environment

    place, run = start.plan.place, start.run
    argv = step_command(run.path, AGENT, place.hosts, place.python, _inside(start))
    advice = {"advice": _TRY_THE_IMAGE.format(python=place.python)} if place.container else {}
    log = run.carrier_log("srun") if start.plan.capture else None
    return Carrier(argv, range(len(place.hosts)), place.hosts, step_environment(os.environ), log, **advice)


def _inside(start: Start) -> list[str]:
    """srun's options for the container, in which a node sees what its agent writes to."""
    from distdbg.launch.backends.slurm.container import container_options

    container, own = start.plan.place.container, start.own
    if container is None:
        return []
    figures = [Path(own[own.index("--prom-dir") + 1])] if "--prom-dir" in own else []
    return container_options(container, start.run.path, *figures)


def _events(said: Sequence[str]) -> Iterator[Event]:
    """What srun has said of memory, and of nodes that have failed."""
    from distdbg.evidence.logs.slurm import failed_nodes, memory_lines
    from distdbg.protocol.launcher_events import SlurmMemory, SlurmNodeFailure

    if lines := [line for text in said for line in memory_lines(text)]:
        yield SlurmMemory(lines=lines)
    if failed := [node for text in said for node in failed_nodes(text)]:
        yield SlurmNodeFailure(hosts=failed)
