"""Decide which jobs Slurm takes, on which nodes of an allocation, with which resources; from settings and SLURM_*."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from distdbg.backend_names import AUTO
from distdbg.errors import UsageError
from distdbg.launch.backends.interface import Claim, Placed
from distdbg.launch.backends.joining import JOIN_RUN
from distdbg.launch.backends.slurm.hostlist import expand
from distdbg.launch.plan.job import is_one_of_many
from distdbg.launch.plan.place import LOCAL, Container, Location
from distdbg.launch.plan.topology import Gpu, MachineFacts
from distdbg.plain_text import whole_number
from distdbg.settings import JobSettings

_FIRST_PORT = 20_000
_PORTS = 20_000
_REPEATED = re.compile(r"([0-9]{1,18})(?:\(x[0-9]+\))?")
#: Where Slurm's commands find their configuration; without one they ask the network, for as long as a minute.
_CONFIGURED_BY = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf")


@dataclass(frozen=True)
class Allocation:
    """`cpus` and `gpus` are those of the smallest node; 0 and None where the variables do not say."""

    job_id: str
    nodes: tuple[str, ...]
    cpus: int = 0
    gpus: int | None = None
    restarts: int = 0

    @property
    def port(self) -> int:
        """The first port to try: two jobs on one node begin at different ports."""
        digits = re.sub(r"[^0-9]", "", self.job_id)
        return _FIRST_PORT + int(digits[-18:] or 0) * 7 % _PORTS


def allocation_of(environ: Mapping[str, str]) -> Allocation | None:
    """None outside of one. Raises UsageError where the variables contradict themselves."""
    job = environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID")
    listed = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST")
    if not job or not listed:
        return None
    if environ.get("SLURM_HET_SIZE", "1") not in ("", "0", "1"):
        raise UsageError(
            f"job {job} is heterogeneous ({environ['SLURM_HET_SIZE']} components), and its nodes are not alike",
            "Launch in one component: srun --het-group=0 …, or ask for one kind of node.",
        )
    try:
        nodes = tuple(expand(listed))
    except ValueError as error:
        raise UsageError(f"SLURM_JOB_NODELIST={listed!r}: {error}", "Is this an allocation of Slurm's?") from None
    return Allocation(
        job_id=job,
        nodes=nodes,
        cpus=_fewest(environ.get("SLURM_JOB_CPUS_PER_NODE", "")),
        gpus=_gpus(environ),
        restarts=whole_number(environ.get("SLURM_RESTART_COUNT", "")) or 0,
    )


def _fewest(text: str) -> int:
    """`8(x2),4` -> 4; 0 where it says no number."""
    pieces = [_REPEATED.fullmatch(piece.strip()) for piece in text.split(",")]
    return min((int(found[1]) for found in pieces if found is not None), default=0)


def _gpus(environ: Mapping[str, str]) -> int | None:
    """The GPUs of a node. SLURM_GPUS_PER_NODE is the request, and may have types: `h100:4`, `a100:2,h100:2`.

    Other requests (for each task, in total, as a generic resource) say nothing certain about a node.
    """
    for name in ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"):
        counts = [whole_number(word.rpartition(":")[2]) for word in environ.get(name, "").split(",")]
        if None not in counts:
            return sum(filter(None, counts))
    return None


def claim(settings: JobSettings, environ: Mapping[str, str], answers: Callable[[], bool]) -> Claim:
    """Whether Slurm takes a job of `--on auto`. `answers` asks the controller, and is called only where that
    matters."""
    if allocation_of(environ) is not None:
        return Claim("standalone" not in settings.torchrun and not is_one_of_many(settings))
    if settings.nodes == 1 or settings.hosts or is_one_of_many(settings) or not can_submit(environ):
        return Claim(takes=False)
    many = f"{settings.nodes} nodes"
    if not answers():
        return Claim(False, f"Slurm is set up here, but its controller does not answer: the {many} run on this machine")
    return Claim(
        True, f"{many} are asked for and sbatch is here: submitted to Slurm (--on local stays on this machine)"
    )


def unused_options(settings: JobSettings, environ: Mapping[str, str]) -> str:
    """Options of a batch job, set on a job that is none. Raises UsageError for a heterogeneous job on any backend."""
    if settings.on == AUTO:
        allocation_of(environ)
    unused = settings.slurm.model_fields_set - {"container_image", "container_python"}
    if settings.slurm.options.keys() <= settings.slurm.container.keys():
        unused -= {"options"}
    if not unused or JOIN_RUN in environ:
        return ""
    submits = "" if allocation_of(environ) is not None or not can_submit(environ) else " (--on slurm submits one)"
    return f"no job is submitted to Slurm{submits}, and nothing comes of {', '.join(sorted(unused))}"


def can_submit(environ: Mapping[str, str]) -> bool:
    """Whether sbatch is here and knows its cluster; touches a few files, starts nothing."""
    sbatch = shutil.which("sbatch", path=environ.get("PATH"))
    if sbatch is None:
        return False
    beside = Path(sbatch).resolve().parent.parent / "etc" / "slurm.conf"
    named = environ.get("SLURM_CONF")
    return any(Path(path).is_file() for path in ((named,) if named else (*_CONFIGURED_BY, str(beside))))


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
    options = settings.slurm.container
    folder = Path(options.get("container-workdir") or Path.cwd())
    container = Container(options, settings.slurm.container_python, folder) if options else None
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
    named = {number for word in words if count and (number := whole_number(word)) is not None}
    others = [Gpu(-1, uuid=word) for word in words if count and word.startswith("GPU-")]
    if instances := tuple(word for word in words if count and word.startswith("MIG-")):
        others.append(Gpu(-1, instances=instances))
    return (*(Gpu(n) for n in sorted({*range(count), *named})), *others)
