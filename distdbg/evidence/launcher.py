"""The process that launched a run, as far as it is known."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Launcher:
    """`alive` is None if it is not known; `because` is the reason."""

    pid: int | None
    host: str
    alive: bool | None
    because: str = ""

    @property
    def name(self) -> str:
        """`the launcher (pid 123 on node1)`."""
        return "the launcher" if self.pid is None else f"the launcher (pid {self.pid} on {self.host})"
