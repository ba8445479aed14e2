"""Folders that hold runs: a new run is made in one, the run that a person means is found, `latest` points to one."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from pathlib import Path

from distdbg.errors import NothingToAnalyse, ToolMissing, UsageError
from distdbg.rundir.files import RunDir, safe_name

RUNS_FOLDER = "distdbg-runs"
DUMPS_FOLDER = "distdbg-dumps"  # of jobs that distdbg did not launch
#: where `distdbg bisect` keeps its runs
BISECT_FOLDER = "distdbg-bisect"
_RUN_NAME = re.compile(r"^\d{8}T\d{6}Z-.+-[0-9a-f]{4}$")


def create_run_dir(name: str, *, explicit: Path | None = None, parent: Path | None = None) -> RunDir:
    """Make a new run directory (0700) with its `latest` link; an existing one is never taken over.

    mkdir is the lock: of two launches into one directory exactly one gets it.
    Raises UsageError where the directory exists or cannot be made.
    """
    folder = parent or Path.cwd() / RUNS_FOLDER
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = explicit.absolute() if explicit else folder.absolute() / f"{stamp}-{safe_name(name)}-{os.urandom(2).hex()}"
    try:
        with contextlib.suppress(FileExistsError):  # a file in its place shows at the next line
            path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
    except FileExistsError:
        raise UsageError(
            f"the run directory {str(path)!r} exists already", "Name another with --run-dir, or remove it first."
        ) from None
    except OSError as error:
        raise UsageError(
            f"the run directory {str(path)!r} cannot be made: {error.strerror}",
            "Name a directory that can be written with --run-dir.",
        ) from None
    run = RunDir(path)
    try:
        (path / ".gitignore").write_text("*\n")
        run.control.touch(mode=0o600)
        run.events.touch(mode=0o600)
        (path / "attempts").mkdir()
        (path / "report").mkdir()
    except OSError as error:
        shutil.rmtree(path, ignore_errors=True)  # a full disk: the next try may have the same name
        raise UsageError(
            f"nothing can be written into the run directory {str(path)!r}: {error.strerror}",
            "Free some space, or name a directory on another disk with --run-dir.",
        ) from None
    if not explicit:
        _point_latest_at(path)
        with contextlib.suppress(OSError):
            (path.parent / ".gitignore").write_text("*\n")
    return run


def make_dump_folder(parent: Path, name: str) -> Path:
    """`<parent>/<utc>-<name>`, 0700; of two that are made in one second each gets its own. Raises OSError."""
    parent.mkdir(parents=True, exist_ok=True)
    stem = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{safe_name(name)}"
    for path in (parent / (f"{stem}-{n}" if n else stem) for n in range(1000)):
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
            return path
    raise FileExistsError(f"{stem} and its like exist")


def find_run_dir(text: str | None) -> RunDir:
    """The run a person means: a path, an id or a unique part of one; without a text, the newest here.

    Raises NothingToAnalyse where there is none, UsageError where several fit.
    """
    if text is None:
        runs = list_runs(Path.cwd() / RUNS_FOLDER)
        if not runs:
            raise NothingToAnalyse(
                f"no run is here: {str(Path.cwd() / RUNS_FOLDER)!r} does not exist or is empty",
                "Name the run's directory, or change to the folder that it was launched from.",
            )
        return runs[-1]
    path = Path(text)
    if path.is_dir():
        if not os.access(path, os.R_OK | os.X_OK):
            raise ToolMissing(f"the run directory {text!r} is another user's, and may not be read", "Ask as its owner.")
        if not ((path / "job.json").exists() or (path / "attempts").exists()):
            raise NothingToAnalyse(f"{text!r} is no run directory: it holds neither job.json nor attempts/")
        return RunDir(path.resolve())
    fits = [run for run in list_runs(Path.cwd() / RUNS_FOLDER) if text in run.id]
    if not fits:
        raise NothingToAnalyse(f"no run is called {text!r}", "`distdbg runs` lists the runs of this folder.")
    if len(fits) > 1:
        raise UsageError(f"{text!r} fits {len(fits)} runs: {', '.join(r.id for r in fits[:4])}", "Write more of it.")
    return fits[0]


def list_runs(folder: Path) -> list[RunDir]:
    """Oldest first. A folder that is missing holds no runs."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
    return [RunDir((folder / name).absolute()) for name in names if _RUN_NAME.match(name)]


def link_latest(folder: Path) -> None:
    """Make `latest` point to the newest run that is left; without one, remove it."""
    runs = list_runs(folder)
    if runs:
        _point_latest_at(runs[-1].path)
    else:
        with contextlib.suppress(OSError):
            (folder / "latest").unlink()


def _point_latest_at(path: Path) -> None:
    link = path.parent / "latest"
    temporary = path.parent / f".latest.{path.name}"
    with contextlib.suppress(OSError):
        temporary.symlink_to(path.name)
        temporary.replace(link)
