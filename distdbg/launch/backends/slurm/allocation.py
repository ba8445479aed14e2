"""The allocation that this process runs in, from SLURM_*. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from distdbg.errors import UsageError
from distdbg.launch.backends.slurm.hostlist import expand

_FIRST_PORT = 20_000
_PORTS = 20_000
_REPEATED = re.compile(r"(\d+)(?:\(x(\d+)\))?")


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
        """Where to begin to look for a free one: two jobs on one node begin at different places."""
        digits = re.sub(r"\D", "", self.job_id)
        return _FIRST_PORT + int(digits or 0) * 7 % _PORTS


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
        cpus=min(_repeated(environ.get("SLURM_JOB_CPUS_PER_NODE", "")), default=0),
        gpus=_gpus(environ),
        restarts=int(environ["SLURM_RESTART_COUNT"]) if environ.get("SLURM_RESTART_COUNT", "").isdigit() else 0,
    )


def _repeated(text: str) -> list[int]:
    """`8(x2),4` -> 8 8 4."""
    return [
        int(m[1])
        for piece in text.split(",")
        if (m := _REPEATED.fullmatch(piece.strip()))
        for _ in range(int(m[2] or 1))
    ]


def _gpus(environ: Mapping[str, str]) -> int | None:
    """Of a node. SLURM_GPUS_PER_NODE is what was asked for, and may bear types: `h100:4`, `a100:2,h100:2`.

    What was asked for in another way (a task, in all, as a generic resource) says nothing certain about a node.
    """
    for name in ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"):
        counts = [word.rpartition(":")[2] for word in environ.get(name, "").split(",")]
        if all(map(str.isdecimal, counts)):
            return sum(map(int, counts))
    return None
