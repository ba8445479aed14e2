"""A plan for a Slurm allocation as shell: one srun for all nodes. Pure."""

from __future__ import annotations

from distdbg.launch.backends.remote_shell import remote_shell
from distdbg.launch.backends.slurm.container import container_options
from distdbg.launch.backends.slurm.step import step_options
from distdbg.launch.plan.dry_run import quote
from distdbg.launch.plan.job import Plan


def render_step(plan: Plan) -> str:
    shell = remote_shell(plan, "srun --nodes=1 --ntasks=1 --overlap -w")
    container = container_options(plan.place.container) if plan.place.container else []
    step = " ".join(map(quote, step_options(plan.place.hosts, container)))
    script = quote("\n".join(["NODE=$SLURM_PROCID", shell.address, shell.command]))
    return "\n".join([*shell.head, *shell.exports, "export FIRST", f"{step} bash -c {script}"])
