"""Whether a job is for Slurm when nobody says it, and whether it is submitted as a batch job."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from distdbg.backend_names import AUTO
from distdbg.launch.backends.interface import Claim
from distdbg.launch.backends.joining import JOIN_RUN
from distdbg.launch.backends.slurm.allocation import allocation_of
from distdbg.launch.plan.job import is_one_of_many
from distdbg.settings import JobSettings

#: Where Slurm's commands find their configuration; without one they ask the network, for as long as a minute.
_CONFIGURED_BY = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf")


def claim(settings: JobSettings, environ: Mapping[str, str], answers: Callable[[], bool]) -> Claim:
    """Of a job of `--on auto`. `answers` asks the controller, and only where that matters."""
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
    """Options of a batch job, of a job that is none. Raises UsageError for a heterogeneous job, whoever takes it."""
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
