"""The `slurm` backend: the nodes of an allocation, by one srun; without an allocation the job is submitted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from distdbg.backend_names import AUTO
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
from distdbg.launch.backends.joining import JOIN_RUN
from distdbg.launch.backends.slurm import commands
from distdbg.launch.backends.slurm.allocation import Allocation, allocation_of, can_submit, devices_of, unfold
from distdbg.launch.backends.slurm.hostlist import expand
from distdbg.launch.plan.torchrun_flags import is_one_of_many

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
        """The controller is asked only if that matters."""
        foreign = is_one_of_many(settings.torchrun)
        if allocation_of(environ) is not None:
            return Claim("standalone" not in settings.torchrun and not foreign)
        if settings.nodes == 1 or settings.hosts or foreign or not can_submit(environ):
            return Claim(takes=False)
        many = f"{settings.nodes} nodes"
        if not commands.answers():
            note = f"Slurm is set up here, but its controller does not answer: the {many} run on this machine"
            return Claim(False, note)
        return Claim(
            True, f"{many} are asked for and sbatch is here: submitted to Slurm (--on local stays on this machine)"
        )

    def submits(self, settings: JobSettings, environ: Mapping[str, str]) -> bool:  # noqa: ARG002
        return allocation_of(environ) is None

    def unused(self, settings: JobSettings, environ: Mapping[str, str]) -> str:
        """Raises UsageError for a heterogeneous job on any backend."""
        if settings.on == AUTO:
            allocation_of(environ)
        unused = settings.slurm.model_fields_set - {"container_image", "container_python"}
        if settings.slurm.options.keys() <= settings.slurm.container.keys():
            unused -= {"options"}
        if not unused or JOIN_RUN in environ:
            return ""
        submits = "" if allocation_of(environ) is not None or not can_submit(environ) else " (--on slurm submits one)"
        return f"no job is submitted to Slurm{submits}, and nothing comes of {', '.join(sorted(unused))}"

    def place(self, settings: JobSettings, environ: Mapping[str, str], host: str) -> Placed:
        """An allocation of this host alone needs no step."""
        from distdbg.launch.plan.place import LOCAL, Container, Location

        allocation = None if is_one_of_many(settings.torchrun) else allocation_of(environ)
        if allocation is None:
            raise UsageError(
                "--on slurm: this is no allocation (SLURM_JOB_ID and SLURM_JOB_NODELIST are not set)",
                "Run it under salloc or in an sbatch script.",
            )
        if int(environ.get("SLURM_STEP_NUM_TASKS", "1") or 1) > 1:
            raise UsageError(
                f"this is one of {environ['SLURM_STEP_NUM_TASKS']} tasks of a step: each would launch the whole job",
                "Run `distdbg launch` once, without srun before it: it starts the step itself.",
            )
        nodes, notes = _choose_nodes(settings, allocation)
        options = settings.slurm.container
        folder = Path(options.get("container-workdir") or Path.cwd())
        container = Container(options, settings.slurm.container_python, folder) if options else None
        if settings.on == AUTO and nodes == (environ.get("SLURMD_NODENAME") or host,) and container is None:
            return Placed(LOCAL, settings, notes)
        if container is not None:
            notes.append(f"in a container, by its {container.python}: this folder, the run directory and distdbg are "
                         "mounted into it")  # fmt: skip
        place = Location("slurm", nodes, allocation.port, allocation.job_id, container)
        return Placed(place, settings.model_copy(update={"nodes": len(nodes)}), notes)

    def check_place(self, settings: JobSettings, place: Location, where: str) -> None:
        if settings.slurm.container and place.on != "slurm":
            raise UsageError(
                f"a container is made by Slurm, and this job runs {where}",
                "Leave the --container options out, or write --on slurm.",
            )

    def machine(
        self, place: Location, settings: JobSettings, environ: Mapping[str, str], here: MachineFacts
    ) -> tuple[MachineFacts, list[str]]:
        """What Slurm has allocated on a node, and this machine's torch, which is not that of an image."""
        allocation = allocation_of(environ)
        if allocation is None:
            return here, []
        count, notes = allocation.gpus, []
        if count is None and settings.nproc_per_node in ("auto", "gpu"):  # the number of ranks follows from it
            count = commands.gpus_of(allocation.job_id)
            notes += (
                [] if count is not None else ["Slurm does not say how many GPUs a node has: --nproc-per-node N does"]
            )
        cpus = allocation.cpus or here.cpus
        gpus = devices_of(count or 0, environ.get("CUDA_VISIBLE_DEVICES", ""))
        torch = here.torch if place.container is None else None
        return replace(here, cpus=cpus, gpus=gpus, torch=torch, allowed_cpus=cpus), notes

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
        from distdbg.launch.backends.slurm.submission import BatchSubmission

        return BatchSubmission(settings).submit()

    def describe(self, settings: JobSettings) -> str:
        from distdbg.launch.backends.slurm.submission import BatchSubmission

        return BatchSubmission(settings).describe()

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
        names = unfold(os.environ.get("SLURM_JOB_NODELIST", ""))
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
        return expand(hosts)

    def no_nodes(self, said: str) -> NothingToAnalyse:
        return NothingToAnalyse(
            f"Slurm gave no nodes: {said or 'srun said nothing'}", "`sinfo` shows which there are; or ask for fewer."
        )


def _choose_nodes(settings: JobSettings, allocation: Allocation) -> tuple[tuple[str, ...], list[str]]:
    """The nodes of the allocation, or as many of them as were asked for; and a note."""
    have = len(allocation.nodes)
    if "nodes" not in settings.model_fields_set:
        word = "node" if have == 1 else "nodes"
        return allocation.nodes, [f"Slurm job {allocation.job_id}: one agent on each of its {have} {word}"]
    if settings.nodes > have:
        raise UsageError(
            f"{settings.nodes} nodes are asked for, and Slurm job {allocation.job_id} has {have}",
            "Ask for fewer with --nodes, or allocate more; --on local runs all of them on this machine.",
        )
    return allocation.nodes[: settings.nodes], [f"Slurm job {allocation.job_id}: {settings.nodes} of its {have} nodes"]


def _events(said: Sequence[str]) -> Iterator[Event]:
    """What srun has said of memory, and of nodes that have failed."""
    from distdbg.evidence.logs.slurm import failed_nodes, memory_lines
    from distdbg.protocol.launcher_events import SlurmMemory, SlurmNodeFailure

    if lines := [line for text in said for line in memory_lines(text)]:
        yield SlurmMemory(lines=lines)
    if failed := [node for text in said for node in failed_nodes(text)]:
        yield SlurmNodeFailure(hosts=failed)
