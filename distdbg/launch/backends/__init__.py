"""Find the installed backends by their entry points, load one when it is needed, and choose that of a job.

interface.py  what a backend is; local/, ssh/ and slurm/ are one each
nodes.py      the agents of one attempt; remote_nodes.py: on other hosts, connected by a client (carriers.py)
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from distdbg.backend_names import AUTO, backend_names, entry_points
from distdbg.errors import UsageError

if TYPE_CHECKING:
    from distdbg.launch.backends.interface import Backend, Placed, SubmittedJob
    from distdbg.rundir import RunDir
    from distdbg.settings import JobSettings


def named(name: str) -> Backend:
    """Raises UsageError where it is not installed, or cannot be loaded."""
    if name not in backend_names():
        known = ", ".join(backend_names())
        raise UsageError(f"there is no backend {name!r}; installed are {known}", "Install the package that has it.")
    backend = _loaded(name)
    if isinstance(backend, str):
        raise UsageError(backend, "Repair that package, or remove it.")
    return backend


def in_order() -> tuple[Backend, ...]:
    """All of them, in the order in which --on auto asks them. One that cannot be loaded is reported once."""
    return tuple(sorted(_all(), key=lambda backend: (backend.order, backend.name)))


def submitted_job(run: RunDir) -> SubmittedJob | None:
    """None where no backend has submitted the run."""
    return next((job for backend in in_order() if (job := backend.submitted(run)) is not None), None)


@cache
def _all() -> tuple[Backend, ...]:
    found = []
    for name in backend_names():
        backend = _loaded(name)
        if isinstance(backend, str):
            sys.stderr.write(f"distdbg: {backend}\n")
        else:
            found.append(backend)
    return tuple(found)


@cache
def _loaded(name: str) -> Backend | str:
    """Or, in one sentence, why not."""
    from distdbg.launch.backends.interface import Backend

    entry = entry_points()[name]
    package = f" of the package {entry.dist.name}" if entry.dist is not None else ""
    try:
        made = entry.load()()
    except Exception as error:
        return f"the backend {name!r}{package} cannot be loaded: {type(error).__name__}: {error}"
    if not isinstance(made, Backend) or getattr(made, "name", None) != name:
        return f"the backend {name!r}{package} cannot be loaded: {entry.value} is no Backend of that name"
    return made


@dataclass(frozen=True)
class Choice:
    """`submits`: the job goes into the backend's queue. `note` is shown to the user."""

    backend: Backend
    submits: bool
    note: str = ""


def choose(settings: JobSettings, environ: Mapping[str, str]) -> Choice:
    """Raises UsageError."""
    notes: list[str] = []
    backend = None if settings.on == AUTO else named(settings.on)
    for one in in_order() if backend is None else ():
        claim = one.claims(settings, environ)
        notes.append(claim.note)
        if claim.takes:
            backend = one
            break
    if backend is None:
        raise UsageError("no backend takes this job", "Name one with --on.")
    submits = backend.submits(settings, environ)
    if not submits:
        notes += [one.unused(settings, environ) for one in in_order()]
    return Choice(backend, submits, "; ".join(filter(None, notes)))


def place_of(backend: Backend, settings: JobSettings, environ: Mapping[str, str], host: str) -> Placed:
    """The place of a job that is not submitted. `host` is this machine's own name. Raises UsageError."""
    if settings.hosts and not backend.takes_hosts:
        raise UsageError(f"--hosts names machines that ssh reaches, and the job runs --on {settings.on}",
                         "Leave out one of the two.")  # fmt: skip
    placed = backend.place(settings, environ, host)
    where = named(placed.place.on).where
    for one in in_order():
        one.check_place(placed.settings, placed.place, where)
    return placed
