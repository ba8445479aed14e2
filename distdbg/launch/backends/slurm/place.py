"""The nodes of a job in a Slurm allocation, and what one of them has. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from distdbg.errors import UsageError
from distdbg.launch.backends.interface import Placed
from distdbg.launch.backends.slurm.allocation import Allocation, allocation_of
from distdbg.launch.plan.job import is_one_of_many
from distdbg.launch.plan.place import LOCAL, Container, Location
from distdbg.launch.plan.topology import Gpu, MachineFacts
from distdbg.settings import JobSettings


def place_in_allocation(settings: JobSettings, environ: Mapping[str, str], host: str) -> Placed:
    """`host` is this machine's own name: an allocation of this host alone needs no step. Raises UsageError."""
    allocation = None if is_one_of_many(settings) else allocation_of(environ)
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
    nodes, notes = _nodes(settings, allocation)
    container = _container(settings)
    if settings.on == "auto" and nodes == (environ.get("SLURMD_NODENAME") or host,) and container is None:
        return Placed(LOCAL, settings, notes)
    if container is not None:
        notes = [*notes, f"in a container, by its {container.python}: this folder, the run directory and distdbg are "
                         "mounted into it"]  # fmt: skip
    place = Location("slurm", nodes, allocation.port, allocation.job_id, container)
    return Placed(place, settings.model_copy(update={"nodes": len(nodes)}), notes)


def check_container(settings: JobSettings, place: Location, where: str) -> None:
    """Raise UsageError where the job runs on another backend, `where` says which, and asks for a container."""
    if settings.slurm.container and place.on != "slurm":
        raise UsageError(
            f"a container is made by Slurm, and this job runs {where}",
            "Leave the --container options out, or write --on slurm.",
        )


def _nodes(settings: JobSettings, allocation: Allocation) -> tuple[tuple[str, ...], list[str]]:
    """Those of the allocation, or as many of them as were asked for."""
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


def _container(settings: JobSettings) -> Container | None:
    options = settings.slurm.container
    folder = Path(options.get("container-workdir") or Path.cwd())
    return Container(options, settings.slurm.container_python, folder) if options else None


def node_facts(
    place: Location, environ: Mapping[str, str], here: MachineFacts, gpus_of: Callable[[str], int | None]
) -> MachineFacts:
    """Of one node of the allocation: what Slurm has allocated on it, and this machine's torch, which an image's is not.

    `gpus_of` asks the controller how many a job has on a node, where the variables do not say.
    """
    allocation = allocation_of(environ)
    if allocation is None:
        return here
    cpus = allocation.cpus or here.cpus
    count = (gpus_of(allocation.job_id) or 0) if allocation.gpus is None else allocation.gpus
    torch = here.torch if place.container is None else None
    return MachineFacts(cpus, _devices(count, environ.get("CUDA_VISIBLE_DEVICES", "")), torch, cpus)


def _devices(count: int, listed: str) -> tuple[Gpu, ...]:
    """So many, and those that Slurm has listed here by other numbers, as on a node that others share."""
    words = [word.strip() for word in listed.split(",") if word.strip()]
    named = {int(word) for word in words if word.isdecimal()} if count else set()
    others = [Gpu(-1, uuid=word) for word in words if count and word.startswith("GPU-")]
    if instances := tuple(word for word in words if count and word.startswith("MIG-")):
        others.append(Gpu(-1, instances=instances))
    return (*(Gpu(n) for n in sorted({*range(count), *named})), *others)
