"""List the installed backends: `local`, `ssh`, `slurm`, and those of other packages.

A backend is an entry point of the group `distdbg.backends`; distdbg/launch/backends/__init__.py loads it.
"""

from __future__ import annotations

import contextlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import EntryPoint

GROUP = "distdbg.backends"
#: Not a backend: distdbg chooses one.
AUTO = "auto"


@cache
def entry_points() -> dict[str, EntryPoint]:
    """The entry points of the backends by name, in alphabetical order. Of two with one name distdbg's own is used, else
    the first on sys.path."""
    from importlib import metadata

    found = {entry.name: entry for entry in _own()}
    for distribution in metadata.distributions():
        with contextlib.suppress(OSError, ValueError):  # another package's file that cannot be read, or is no such list
            for entry in distribution.entry_points.select(group=GROUP):
                found.setdefault(entry.name, entry)
    return dict(sorted(found.items()))


def _own() -> Iterator[EntryPoint]:
    """Those of distdbg itself, by their folders: a copy on PYTHONPATH has no metadata, or that of an older version."""
    from importlib.metadata import EntryPoint

    for file in sorted((Path(__file__).parent / "launch" / "backends").glob("*/backend.py")):
        name = file.parent.name
        yield EntryPoint(name, f"distdbg.launch.backends.{name}.backend:{name.capitalize()}Backend", GROUP)


def backend_names() -> tuple[str, ...]:
    """What --on and a job file's `on` take beside `auto`."""
    return tuple(entry_points())
