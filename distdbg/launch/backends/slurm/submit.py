"""Submit a job to Slurm's queue: checks, run directory, script, sbatch."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

from distdbg.errors import DistdbgError, UsageError
from distdbg.launch.backends.slurm import batch, commands
from distdbg.launch.io.journal import note
from distdbg.masking import mask_argv
from distdbg.protocol.launcher_events import Submitted
from distdbg.rundir import RunDir, create_run_dir, link_latest
from distdbg.settings import JobSettings
from distdbg.whole_file import write_json, write_whole

SCHEMA = "distdbg.slurm/1"


def submit(settings: JobSettings) -> RunDir:
    """Raises UsageError for everything that keeps the job out of the queue: nothing ran, and no directory is left."""
    batch.check(settings)
    batch.render_script(settings, RunDir(Path("/run")), Path.cwd())  # a template's mistakes, before anything is made
    if shutil.which("sbatch") is None:
        raise UsageError(
            "there is no sbatch on PATH: this is no machine of a Slurm cluster",
            "Call distdbg where sbatch is; --on local runs on this machine.",
        )
    _check_size(settings)
    run = create_run_dir(settings.name or Path(settings.program).stem, explicit=settings.run_dir)
    try:
        write_whole(run.batch_script, batch.render_script(settings, run, Path.cwd()))
        number = commands.submit(str(run.batch_script), batch.secrets(settings))
    except DistdbgError as error:
        shutil.rmtree(run.path, ignore_errors=True)
        if settings.run_dir is None:
            link_latest(run.path.parent)
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"nothing was submitted: {error.message}", error.remedy) from None
    _record(run, settings, number)
    return run


def _check_size(settings: JobSettings) -> None:
    """Slurm itself would let a job wait for ever that is larger than its partition.

    A controller that does not answer this is not asked to submit: it would take the job when it wakes up.
    """
    found = None
    try:
        found = commands.nodes_of(settings.slurm.partition)
    except commands.SlurmSilent as error:
        raise UsageError(f"nothing was submitted: {error.message}", error.remedy) from None
    except DistdbgError:
        pass  # sbatch will say what is wrong
    if found is not None and settings.nodes > found[1]:
        raise UsageError(
            f"{settings.nodes} nodes are asked for, and Slurm's partition {found[0]!r} has {found[1]}",
            "Ask for fewer, or name another partition; `sinfo -s` lists them.",
        )


def _record(run: RunDir, settings: JobSettings, number: int) -> None:
    write_json(
        run.slurm,
        {
            "schema": SCHEMA,
            "job_id": number,
            "submitted": time.time(),
            "argv": mask_argv(["distdbg", *sys.argv[1:]]),
            "cwd": str(Path.cwd()),
            "host": os.uname().nodename,
            "nodes": settings.nodes,
            "show_ranks": settings.show_ranks if settings.capture else "none",
            "max_requeues": settings.slurm.max_requeues,
        },
    )
    note(run, Submitted(job_id=number))


def describe(settings: JobSettings) -> str:
    """The script as it would be submitted, for --dry-run and slurm-script, with the name of a future directory."""
    batch.check(settings)
    folder = settings.run_dir.absolute() if settings.run_dir else Path.cwd() / "distdbg-runs" / "RUN"
    return batch.render_script(settings, RunDir(folder), Path.cwd())
