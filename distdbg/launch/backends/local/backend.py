"""The `local` backend: every node is this machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

from distdbg.launch.backends.interface import Backend, Claim, Placed, Start

if TYPE_CHECKING:
    from distdbg.launch.backends.local.nodes import AgentCommand, LocalNodes
    from distdbg.launch.backends.probes import ProbeCommand, ProbeOptions
    from distdbg.launch.plan.job import NodePlan
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

    def nodes(self, start: Start) -> LocalNodes:
        from distdbg.launch.backends.local.nodes import LocalNodes

        commands = [_agent_command(start, node) for node in start.plan.nodes]
        return LocalNodes(commands, start.grace, start.journal, start.listener)

    def claims_probes(self, options: ProbeOptions) -> bool:  # noqa: ARG002
        return True

    def probes(self, options: ProbeOptions) -> tuple[ProbeCommand, ...]:
        from distdbg.launch.backends.probes import ProbeCommand, probe_command

        host = socket.gethostname()
        names = [host, *(f"{host}.{number}" for number in range(2, (options.nodes or 1) + 1))]
        return tuple(
            ProbeCommand((name,), 1, probe_command(options, name, port=options.port if name == host else 0))
            for name in names
        )


def _agent_command(start: Start, node: NodePlan) -> AgentCommand:
    from distdbg.launch.backends.local.nodes import AgentCommand

    own, place = start.own, ["--node-rank", str(node.node_rank), "--host", socket.gethostname()]
    if "--metrics-port" in own:  # the nodes of one machine cannot share a port
        place += ["--metrics-port", str(int(own[own.index("--metrics-port") + 1]) + node.node_rank)]
    environment = dict(os.environ) | {variable.name: variable.value for variable in node.environment}
    for name in node.unset:
        environment.pop(name, None)
    return AgentCommand(node.node_rank, [*own, *place, "--", *node.torchrun], environment, start.plan.inherit_stdin)
