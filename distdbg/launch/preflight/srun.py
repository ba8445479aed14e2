"""How a command gets to Slurm's nodes: the lines of srun. Pure."""

from __future__ import annotations

from collections.abc import Sequence

#: Beside whatever step holds the node's CPUs, memory and GPUs; without --overlap srun would wait for it in silence.
_BESIDE = ("--overlap", "--mem=0", "--cpu-bind=none", "--mpi=none", "--quiet")
#: Outside an allocation: nobody waits in a queue for a look.
WAIT_S = 20


def step_on(node: str, argv: Sequence[str]) -> list[str]:
    """One step on one node of this allocation: of several nodes in one step, a dead one would silence all."""
    return ["srun", "--nodes=1", "--ntasks=1", f"--nodelist={node}", *_BESIDE, *argv]


def ask_for(nodes: int, argv: Sequence[str]) -> list[str]:
    """An allocation of its own, one task a node. Partition and account come from SLURM_PARTITION, SLURM_ACCOUNT."""
    asked = [f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", f"--immediate={WAIT_S}"]
    return ["srun", *asked, "--job-name=distdbg-preflight", "--mpi=none", *argv]
