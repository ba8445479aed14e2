"""Where a job's nodes are: this machine, the hosts of a Slurm allocation, or hosts that ssh reaches. Pure."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from distdbg.errors import UsageError
from distdbg.launch.slurm.allocation import Allocation, allocation_of
from distdbg.launch.slurm.container import Container
from distdbg.launch.topology import Gpu, MachineFacts
from distdbg.settings import JobSettings


@dataclass(frozen=True)
class Place:
    """`hosts` by node rank, empty for this machine; `port` is where the search for a free one begins."""

    on: Literal["local", "slurm", "ssh"] = "local"
    hosts: tuple[str, ...] = ()
    port: int = 0
    job_id: str = ""
    container: Container | None = None

    @property
    def far(self) -> bool:
        return bool(self.hosts)

    @property
    def python(self) -> str:
        """The ranks' interpreter: this one, unless an image brings its own."""
        return self.container.python if self.container else sys.executable


LOCAL = Place()
#: Where the search for a free port on the first host begins: torchrun's own default.
_SSH_PORT = 29400


def place_of(
    settings: JobSettings, environ: Mapping[str, str], host: str, *, one_of_many: bool
) -> tuple[Place, JobSettings, list[str]]:
    """The place, the settings with the number of nodes that it has, and what was decided without being asked.

    `host` is this machine's own name. An allocation of this host alone needs no step. Raises UsageError.
    """
    place, settings, notes = _place_of(settings, environ, host, one_of_many=one_of_many)
    if settings.slurm.container and place.on != "slurm":
        raise UsageError(
            f"a container is made by Slurm, and this job runs {'over ssh' if place.on == 'ssh' else 'on this machine'}",
            "Leave the --container options out, or write --on slurm.",
        )
    return place, settings, notes


def _place_of(
    settings: JobSettings, environ: Mapping[str, str], host: str, *, one_of_many: bool
) -> tuple[Place, JobSettings, list[str]]:
    if settings.hosts and settings.on in ("auto", "ssh"):
        return _by_ssh(settings)
    if settings.hosts:
        raise UsageError(f"--hosts names machines that ssh reaches, and the job runs --on {settings.on}",
                         "Leave out one of the two.")  # fmt: skip
    if settings.on == "ssh":
        raise UsageError("--on ssh: no hosts are named", "Name them with --hosts a,b or a file that lists them.")
    if settings.on == "auto" and "standalone" in settings.torchrun:
        return LOCAL, settings, []
    allocation = None if settings.on == "local" or one_of_many else allocation_of(environ)
    if settings.on == "slurm" and allocation is None:
        raise UsageError(
            "--on slurm: this is no allocation (SLURM_JOB_ID and SLURM_JOB_NODELIST are not set)",
            "Run it under salloc or in an sbatch script.",
        )
    if allocation is None:
        return LOCAL, settings, []
    if int(environ.get("SLURM_STEP_NUM_TASKS", "1") or 1) > 1:
        raise UsageError(
            f"this is one of {environ['SLURM_STEP_NUM_TASKS']} tasks of a step: each would launch the whole job",
            "Run `distdbg launch` once, without srun before it: it starts the step itself.",
        )
    nodes, notes = _nodes(settings, allocation)
    container = _container(settings)
    if settings.on == "auto" and nodes == (environ.get("SLURMD_NODENAME") or host,) and container is None:
        return LOCAL, settings, notes
    if container is not None:
        notes = [*notes, f"in a container, by its {container.python}: this folder, the run directory and distdbg are "
                         "mounted into it"]  # fmt: skip
    place = Place("slurm", nodes, allocation.port, allocation.job_id, container)
    return place, settings.model_copy(update={"nodes": len(nodes)}), notes


def _by_ssh(settings: JobSettings) -> tuple[Place, JobSettings, list[str]]:
    hosts = tuple(settings.hosts)
    if "nodes" in settings.model_fields_set:
        if settings.nodes > len(hosts):
            wrong = f"{settings.nodes} nodes are asked for, and {len(hosts)} hosts are named"
            raise UsageError(wrong, "Name more hosts, or ask for fewer nodes.")
        hosts = hosts[: settings.nodes]
    if len(set(hosts)) < len(hosts):
        twice = next(host for host in hosts if hosts.count(host) > 1)
        raise UsageError(f"{twice} is named twice", "A host runs one agent; more ranks on it are --nproc-per-node.")
    if isinstance(settings.nproc_per_node, str):
        raise UsageError(
            f"--nproc-per-node {settings.nproc_per_node}: what other hosts have is not known before they are reached",
            "Say how many ranks each host runs.",
        )
    return Place("ssh", hosts, _SSH_PORT), settings.model_copy(update={"nodes": len(hosts)}), []


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
    place: Place, environ: Mapping[str, str], here: MachineFacts, gpus_of: Callable[[str], int | None]
) -> MachineFacts:
    """Of one node of the place: what Slurm has allocated on it, and this machine's torch, which an image's is not.

    `gpus_of` asks the controller how many a job has on a node, where the variables do not say.
    """
    allocation = allocation_of(environ) if place.on == "slurm" else None
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
