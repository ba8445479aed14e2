"""The `local` backend: every node is this machine."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

from distdbg.launch.backends.interface import Backend, Claim, Placed, ProbeCommand, ProbeOptions

if TYPE_CHECKING:
    from distdbg.launch.backends.local.nodes import LocalNodes
    from distdbg.launch.backends.nodes import AttemptStart
    from distdbg.settings import JobSettings


class LocalBackend(Backend):
    name = "local"
    order = 100
    where = "on this machine"
    one_machine = True

    def claims(self, settings: JobSettings, environ: Mapping[str, str]) -> Claim:  # noqa: ARG002
        return Claim(takes=True)

    def place(self, settings: JobSettings, environ: Mapping[str, str], host: str) -> Placed:  # noqa: ARG002
        from distdbg.launch.plan.place import LOCAL

        return Placed(LOCAL, settings)

    def nodes(self, start: AttemptStart) -> LocalNodes:
        from distdbg.launch.backends.local.nodes import LocalNodes

        return LocalNodes(start)

    def claims_probes(self, options: ProbeOptions) -> bool:  # noqa: ARG002
        return True

    def probes(self, options: ProbeOptions) -> tuple[ProbeCommand, ...]:
        host = socket.gethostname()
        names = [host, *(f"{host}.{number}" for number in range(2, (options.nodes or 1) + 1))]
        return tuple(
            ProbeCommand((name,), 1, options.command(name, options.port if name == host else 0)) for name in names
        )
