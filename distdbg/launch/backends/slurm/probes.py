"""A preflight's probes on Slurm's nodes: on those of this allocation, or on an allocation of its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from distdbg.errors import UsageError
from distdbg.launch.backends.probes import ProbeCommand, ProbeOptions, probe_command
from distdbg.launch.backends.slurm.hostlist import expand

#: Beside whatever step holds the node's CPUs, memory and GPUs; without --overlap srun would wait for it in silence.
_BESIDE = ("--overlap", "--mem=0", "--cpu-bind=none", "--mpi=none", "--quiet")
#: Outside an allocation: nobody waits in a queue for a look.
_WAIT_S = 20


def chosen(options: ProbeOptions) -> bool:
    """Within an allocation, and where several nodes are asked for."""
    return ("SLURM_JOB_ID" in os.environ or (options.nodes or 1) > 1) and shutil.which("srun") is not None


def probes(options: ProbeOptions) -> tuple[ProbeCommand, ...]:
    """Raises UsageError."""
    if "SLURM_JOB_ID" not in os.environ:
        count = options.nodes or 1
        return (ProbeCommand((), count, tuple(ask_for(count, probe_command(options, None, options.port))), _WAIT_S),)
    folded = os.environ.get("SLURM_JOB_NODELIST", "")
    try:
        names = expand(folded)
    except ValueError as error:
        raise UsageError(f"SLURM_JOB_NODELIST={folded!r}: {error}", "Is this an allocation of Slurm's?") from None
    if not names:
        raise UsageError(
            "SLURM_JOB_ID is set, and SLURM_JOB_NODELIST names no node", "Is this an allocation of Slurm's?"
        )
    if options.nodes is not None and options.nodes > len(names):
        raise UsageError(f"--nodes is {options.nodes}, and this allocation has {len(names)}", "Leave --nodes out.")
    return tuple(
        ProbeCommand((name,), 1, tuple(step_on(name, probe_command(options, name, options.port))))
        for name in names[: options.nodes]
    )


def step_on(node: str, argv: Sequence[str]) -> list[str]:
    """One step on one node of this allocation: of several nodes in one step, a dead one would silence all."""
    return ["srun", "--nodes=1", "--ntasks=1", f"--nodelist={node}", *_BESIDE, *argv]


def ask_for(nodes: int, argv: Sequence[str]) -> list[str]:
    """An allocation of its own, one task a node. Partition and account come from SLURM_PARTITION, SLURM_ACCOUNT."""
    asked = [f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", f"--immediate={_WAIT_S}"]
    return ["srun", *asked, "--job-name=distdbg-preflight", "--mpi=none", *argv]
