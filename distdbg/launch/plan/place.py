"""Where a job's nodes are: this machine, or hosts that a backend reaches. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Container:
    """`options` are the user's, by the long names that the backend's own tool has for them; `python` is the image's
    interpreter, a name or a path there; `folder` is the ranks' own: where the job was launched, unless the user names
    another."""

    options: Mapping[str, str]
    python: str
    folder: Path


@dataclass(frozen=True)
class Location:
    """`on` is the backend that starts the agents. `hosts` by node rank, empty for this machine; `port` is where the
    search for a free one begins."""

    on: str = "local"
    hosts: tuple[str, ...] = ()
    port: int = 0
    job_id: str = ""
    container: Container | None = None

    @property
    def remote(self) -> bool:
        return bool(self.hosts)

    @property
    def python(self) -> str:
        """The ranks' interpreter: this one, unless an image brings its own."""
        return self.container.python if self.container else sys.executable


LOCAL = Location()
