"""The place of a job's nodes: this machine, or hosts that a backend reaches."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from distdbg.errors import UsageError
from distdbg.given_file import read_given


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


def read_hosts(text: str) -> list[str]:
    """The hosts of `a,b,c`, or of a file with one a line (as mpirun's and DeepSpeed's hostfiles are), in their order.

    Comments (#) and what follows a name on its line (slots=8) are not read: --nproc-per-node says how many ranks a host
    has. Raises UsageError for a file that cannot be read, or names nobody.
    """
    path = Path(text)
    if "/" not in text and not path.is_file():
        hosts = [host.strip() for host in text.split(",")]
    else:
        try:
            lines = read_given(path).decode("utf-8", "replace").splitlines()
        except OSError as error:
            raise UsageError(f"--hosts {text}: {error.strerror}", "Name hosts, or a file with one a line.") from None
        hosts = [words[0] for line in lines if (words := line.partition("#")[0].split())]
    bad = next((host for host in hosts if not _is_host(host)), None)
    if not hosts or bad is not None:
        raise UsageError(f"--hosts {text}: {bad!r} is no host" if hosts else f"--hosts {text} names no host",
                         "Name hosts, or a file with one a line.")  # fmt: skip
    return hosts


def _is_host(name: str) -> bool:
    """Whether it can be one word of ssh's command line, and no option of ssh's."""
    return name.isprintable() and len(name.split()) == 1 == len(name.split(" ")) and not name.startswith("-")
