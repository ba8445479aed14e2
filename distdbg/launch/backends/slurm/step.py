"""The one step that runs an agent on each node of an allocation: srun's command line and environment. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

#: Set by the allocation's own options, read by srun as if they were its own: they would cut the agent's node down to a
#: task's share, or refuse one task a node.
_WOULD_BIND = (
    "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_CPUS_PER_TASK",
    "SLURM_TRES_PER_TASK", "SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND", "SLURM_GPUS_PER_SOCKET", "SLURM_CPU_BIND",
    "SLURM_NTASKS_PER_GPU", "SLURM_NTASKS_PER_CORE", "SLURM_NTASKS_PER_SOCKET", "SLURM_DISTRIBUTION",
    "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU", "SLURM_MEM_PER_NODE", "SLURM_THREADS_PER_CORE", "SLURM_HINT",
    "SLURM_EXACT", "SLURM_EXCLUSIVE", "SLURM_KILL_BAD_EXIT", "SLURM_WAIT", "SLURM_OPEN_MODE", "SLURM_LABELIO",
    "SLURM_STDINMODE", "SLURM_STDOUTMODE", "SLURM_STDERRMODE", "SLURM_UNBUFFEREDIO", "SLURM_EXPORT_ENV",
)  # fmt: skip


def step_command(
    run: Path, agent: Path, nodes: Sequence[str], python: str = sys.executable, container: Sequence[str] = ()
) -> list[str]:
    """`nodes` by name, in the order of their node ranks, which is that of Slurm's tasks."""
    return [*step_options(nodes, container), python, str(agent), "--remote", str(run), "--node-rank", "SLURM_PROCID"]


def step_options(nodes: Sequence[str], container: Sequence[str] = ()) -> list[str]:
    """srun, up to the program: one task a node, with all that the job has there; `container` is Container.step's.

    --overlap: a later `srun --overlap` (hang-dump) and the user's own steps find room beside it. --no-kill: when a
    node dies the others are left to us, with their evidence. --wait=0: nodes that are done do not end those that are
    not.
    """
    number = str(len(nodes))
    return [
        "srun", "--nodes", number, "--ntasks", number, "--ntasks-per-node=1", "--nodelist", ",".join(nodes),
        "--job-name=distdbg", "--overlap", "--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--mem=0",
        "--cpu-bind=none", "--distribution=block", "--export=ALL", "--input=all",
        *container,
    ]  # fmt: skip


def step_environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in _WOULD_BIND}
