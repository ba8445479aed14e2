"""Which hosts a person means: `a,b,c`, or a file with one a line, as mpirun's and DeepSpeed's hostfiles are."""

from __future__ import annotations

from pathlib import Path

from distdbg.errors import UsageError
from distdbg.given_file import read_given


def read_hosts(text: str) -> list[str]:
    """In their order. Comments (#) and what follows a name on its line (slots=8) are not read: --nproc-per-node says
    how many ranks a host has. Raises UsageError for a file that cannot be read, or names nobody.
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
    bad = next((host for host in hosts if not host or host.startswith("-") or any(c.isspace() for c in host)), None)
    if not hosts or bad is not None:
        raise UsageError(f"--hosts {text}: {bad!r} is no host" if hosts else f"--hosts {text} names no host",
                         "Name hosts, or a file with one a line.")  # fmt: skip
    return hosts
