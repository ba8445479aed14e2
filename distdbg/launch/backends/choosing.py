"""Choose the backend of a job, whether it goes into a queue, and where it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distdbg.backend_names import AUTO
from distdbg.errors import UsageError
from distdbg.launch.backends import in_order, named
from distdbg.settings import JobSettings

if TYPE_CHECKING:
    from distdbg.launch.backends.interface import Backend, Placed


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
