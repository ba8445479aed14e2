"""Read the allocation that a launch runs in from SLURM_*, and whether jobs can be submitted here."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from distdbg.errors import UsageError
from distdbg.launch.backends.slurm.hostlist import expand
from distdbg.plain_text import whole_number

if TYPE_CHECKING:
    from distdbg.launch.plan.topology import Gpu

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
    return Allocation(
        job_id=job,
        nodes=unfold(listed),
        cpus=_fewest(environ.get("SLURM_JOB_CPUS_PER_NODE", "")),
        gpus=_gpus(environ),
        restarts=whole_number(environ.get("SLURM_RESTART_COUNT", "")) or 0,
    )


def unfold(listed: str) -> tuple[str, ...]:
    """The names in SLURM_JOB_NODELIST. Raises UsageError."""
    try:
        return tuple(expand(listed))
    except ValueError as error:
        raise UsageError(f"SLURM_JOB_NODELIST={listed!r}: {error}", "Is this an allocation of Slurm's?") from None


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


def can_submit(environ: Mapping[str, str]) -> bool:
    """Whether sbatch is here and knows its cluster; touches a few files, starts nothing."""
    sbatch = shutil.which("sbatch", path=environ.get("PATH"))
    if sbatch is None:
        return False
    beside = Path(sbatch).resolve().parent.parent / "etc" / "slurm.conf"
    named = environ.get("SLURM_CONF")
    return any(Path(path).is_file() for path in ((named,) if named else (*_CONFIGURED_BY, str(beside))))


def devices_of(count: int, listed: str) -> tuple[Gpu, ...]:
    """So many, and those that Slurm has listed here by other numbers, as on a node that others share."""
    from distdbg.launch.plan.topology import Gpu

    words = [word.strip() for word in listed.split(",") if word.strip()]
    named = {number for word in words if count and (number := whole_number(word)) is not None}
    others = [Gpu(-1, uuid=word) for word in words if count and word.startswith("GPU-")]
    if instances := tuple(word for word in words if count and word.startswith("MIG-")):
        others.append(Gpu(-1, instances=instances))
    return (*(Gpu(n) for n in sorted({*range(count), *named})), *others)
