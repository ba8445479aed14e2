"""Folders that hold runs: make a new run, find the run that a person means, set `latest`."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from distdbg.errors import NothingToAnalyse, UsageError
from distdbg.rundir.files import RunDir, safe_name
from distdbg.rundir.reading import refuse_unreadable
from distdbg.whole_file import make_private_folder, refuse_foreign_folder, why_not_trusted, write_link, write_whole

RUNS_FOLDER = "distdbg-runs"
DUMPS_FOLDER = "distdbg-dumps"  # of jobs that distdbg did not launch
#: where `distdbg bisect` keeps its runs
BISECT_FOLDER = "distdbg-bisect"
_RUN_NAME = re.compile(r"^\d{8}T\d{6}Z-.+-[0-9a-f]{4}$")


def folder_for(name: str) -> tuple[Path, str]:
    """The folder of that name for what is started here, and why it is not `./<name>`; empty where it is.

    Somebody else's folder of that name is not written to: this user's own stands in their state folder then, one for
    each working directory.
    """
    here = Path.cwd() / name
    because = why_not_trusted(here)
    if not because:
        return here, ""
    from hashlib import sha256  # OpenSSL takes 3.5 MiB, and this folder is rarely needed

    states = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    key = sha256(os.fsencode(here.parent)).hexdigest()[:8]
    return states / "distdbg" / name / f"{safe_name(here.parent.name)}-{key}", because


def create_run_dir(
    name: str, *, explicit: Path | None = None, parent: Path | None = None, say: Callable[[str], object] | None = None
) -> RunDir:
    """Make a new run directory (0700) with its `latest` link; an existing one is never taken over.

    mkdir is the lock: of two launches into one directory exactly one gets it. `say` gets the place where it is made
    instead of here, and the reason. Raises UsageError where the directory exists or cannot be made.
    """
    folder, instead = (parent, "") if parent else folder_for(RUNS_FOLDER)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = explicit.absolute() if explicit else folder.absolute() / f"{stamp}-{safe_name(name)}-{os.urandom(2).hex()}"
    try:
        with contextlib.suppress(FileExistsError):  # a file in its place shows at the next line
            _make_parent(path.parent, private=bool(instead) and not explicit)
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
    if instead and not explicit and say is not None:
        say(f"the run is kept in {str(path)!r} and not in ./{RUNS_FOLDER}: {instead}")
    run = RunDir(path)
    try:
        write_whole(path / ".gitignore", "*\n")
        for empty in (run.control, run.events):
            write_whole(empty, b"")
        for inner in ("attempts", "report"):
            (path / inner).mkdir(mode=0o700)
    except OSError as error:
        shutil.rmtree(path, ignore_errors=True)  # a full disk: the next try may have the same name
        raise UsageError(
            f"nothing can be written into the run directory {str(path)!r}: {error.strerror}",
            "Free some space, or name a directory on another disk with --run-dir.",
        ) from None
    if not explicit:
        _point_latest_at(path)
    return run


def make_dump_folder(name: str, kind: str) -> Path:
    """`<kind>/<utc>-<name>`, 0700; of two that are made in one second each gets its own. Raises OSError."""
    parent, instead = folder_for(kind)
    _make_parent(parent, private=bool(instead))
    stem = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{safe_name(name)}"
    for path in (parent / (f"{stem}-{n}" if n else stem) for n in range(1000)):
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
            return path
    raise FileExistsError(f"{stem} and its like exist")


def _make_parent(folder: Path, *, private: bool) -> None:
    """With a .gitignore where it is one of ours. Raises OSError, also where a private one is not this user's own."""
    if private:
        make_private_folder(folder)
        refuse_foreign_folder(folder)
    elif not folder.exists():
        folder.mkdir(mode=0o755, parents=True)
    ignore = folder / ".gitignore"
    if folder.name in (RUNS_FOLDER, DUMPS_FOLDER, BISECT_FOLDER) and not os.path.lexists(ignore):
        with contextlib.suppress(OSError):
            write_whole(ignore, "*\n", private=False)


def find_run_dir(text: str | None) -> RunDir:
    """The run a person means: a path, an id or a unique part of one; without a text, the newest here.

    Raises NothingToAnalyse if there is none, UsageError if several fit, ToolMissing if it may not be read.
    """
    if text is None:
        runs = runs_here()
        if not runs:
            raise NothingToAnalyse(
                f"no run is here: {str(Path.cwd() / RUNS_FOLDER)!r} does not exist or is empty",
                "Name the run's directory, or change to the folder that it was launched from.",
            )
        return runs[-1]
    path = Path(text)
    refuse_unreadable(text)
    if path.is_dir():
        if not ((path / "job.json").exists() or (path / "attempts").exists()):
            raise NothingToAnalyse(
                f"{text!r} is no run directory: it holds neither job.json nor attempts/",
                f"Name a folder in {RUNS_FOLDER}; `distdbg runs` lists them.",
            )
        return RunDir(path.resolve())
    fits = [run for run in runs_here() if text in run.id]
    if not fits:
        raise NothingToAnalyse(f"no run is called {text!r}", "`distdbg runs` lists the runs of this folder.")
    if len(fits) > 1:
        raise UsageError(f"{text!r} fits {len(fits)} runs: {', '.join(r.id for r in fits[:4])}", "Write more of it.")
    return fits[0]


def runs_here() -> list[RunDir]:
    """Those that were started in this working directory, oldest first; this user's own, if there are any."""
    own, instead = folder_for(RUNS_FOLDER)
    return (list_runs(own) if instead else []) or list_runs(Path.cwd() / RUNS_FOLDER)


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
    with contextlib.suppress(OSError):
        write_link(path.parent / "latest", path.name)
