"""Where a launch runs: on this machine, within a Slurm allocation, or as a batch job. Decided here, and said."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from distdbg.launch.plan import is_one_of_many
from distdbg.settings import JobSettings

#: Where Slurm's commands find their configuration; without one they ask the network, for as long as a minute.
_CONFIGURED_BY = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf")


@dataclass(frozen=True)
class Choice:
    """`allocation`: srun starts the nodes of the job that we are in; `batch`: one is submitted."""

    on: Literal["local", "allocation", "batch"]
    note: str = ""


def choose(
    settings: JobSettings, environ: Mapping[str, str], *, can_submit: bool, answers: Callable[[], bool]
) -> Choice:
    """`can_submit`: sbatch is here and configured; `answers` asks the controller, and only where that matters."""
    job = environ.get("SLURM_JOB_ID", "") if environ.get("SLURM_JOB_NODELIST") else ""
    if settings.on == "slurm":
        return Choice("allocation" if job else "batch")
    if settings.on == "local" or is_one_of_many(settings):
        return Choice("local")
    if job:
        return _within(job, settings.nodes, environ)
    if settings.nodes == 1 or not can_submit:
        return Choice("local")
    if not answers():
        return Choice("local", f"Slurm is set up here, but its controller does not answer: the {settings.nodes} nodes "
                               "run on this machine")  # fmt: skip
    return Choice("batch", f"{settings.nodes} nodes and sbatch is here: submitted to Slurm (--on local stays here)")


def _within(job: str, nodes: int, environ: Mapping[str, str]) -> Choice:
    """Within a step srun has chosen the machines already, unless it is a lone task: somebody's shell on a node."""
    if "SLURM_STEP_ID" in environ and (nodes == 1 or environ.get("SLURM_STEP_NUM_TASKS", "1") != "1"):
        return Choice("local")
    return Choice("allocation", f"within Slurm job {job}: srun starts the nodes (--on local stays on this one)")


def can_submit(environ: Mapping[str, str]) -> bool:
    """Whether sbatch is here and knows its cluster; touches a few files, starts nothing."""
    sbatch = shutil.which("sbatch", path=environ.get("PATH"))
    if sbatch is None:
        return False
    beside = Path(sbatch).resolve().parent.parent / "etc" / "slurm.conf"
    named = environ.get("SLURM_CONF")
    return any(Path(path).is_file() for path in ((named,) if named else (*_CONFIGURED_BY, str(beside))))
