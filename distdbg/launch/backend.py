"""Whether a launch runs from here (this machine, or the allocation that we are in) or is submitted as a batch job."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from distdbg.launch.plan import is_one_of_many
from distdbg.launch.slurm.allocation import allocation_of
from distdbg.launch.slurm.joining import JOIN_RUN
from distdbg.settings import JobSettings

#: Where Slurm's commands find their configuration; without one they ask the network, for as long as a minute.
_CONFIGURED_BY = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf")


@dataclass(frozen=True)
class Choice:
    batch: bool
    note: str = ""


def choose(
    settings: JobSettings, environ: Mapping[str, str], *, can_submit: bool, answers: Callable[[], bool]
) -> Choice:
    """`can_submit`: sbatch is here and configured; `answers` asks the controller, and only where that matters."""
    choice = _choose(settings, environ, can_submit=can_submit, answers=answers)
    unused = settings.slurm.model_fields_set - {"container_image", "container_python"}
    if settings.slurm.options.keys() <= settings.slurm.container.keys():
        unused -= {"options"}
    if choice.batch or not unused or JOIN_RUN in environ:
        return choice
    submits = "" if allocation_of(environ) is not None or not can_submit else " (--on slurm submits one)"
    told = f"no job is submitted to Slurm{submits}, and nothing comes of {', '.join(sorted(unused))}"
    return Choice(False, "; ".join(filter(None, (choice.note, told))))


def _choose(
    settings: JobSettings, environ: Mapping[str, str], *, can_submit: bool, answers: Callable[[], bool]
) -> Choice:
    if settings.on in ("local", "ssh") or allocation_of(environ) is not None:
        return Choice(batch=False)
    if settings.on == "slurm":
        return Choice(batch=True)
    if settings.nodes == 1 or settings.hosts or not can_submit or is_one_of_many(settings):
        return Choice(batch=False)
    many = f"{settings.nodes} nodes"
    if not answers():
        return Choice(
            False, f"Slurm is set up here, but its controller does not answer: the {many} run on this machine"
        )
    return Choice(
        True, f"{many} are asked for and sbatch is here: submitted to Slurm (--on local stays on this machine)"
    )


def can_submit(environ: Mapping[str, str]) -> bool:
    """Whether sbatch is here and knows its cluster; touches a few files, starts nothing."""
    sbatch = shutil.which("sbatch", path=environ.get("PATH"))
    if sbatch is None:
        return False
    beside = Path(sbatch).resolve().parent.parent / "etc" / "slurm.conf"
    named = environ.get("SLURM_CONF")
    return any(Path(path).is_file() for path in ((named,) if named else (*_CONFIGURED_BY, str(beside))))
