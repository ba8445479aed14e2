"""The `ssh` backend: hosts that are named, one node each, through the user's own OpenSSH client and configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from distdbg.errors import UsageError
from distdbg.launch.backends.interface import Backend, Claim, Placed, Start

if TYPE_CHECKING:
    from distdbg.launch.backends.probes import ProbeCommand, ProbeOptions
    from distdbg.launch.backends.remote_nodes import RemoteNodes
    from distdbg.launch.plan.job import Plan
    from distdbg.settings import JobSettings

#: Where the search for a free port on the first host begins: torchrun's own default.
_PORT = 29400
#: What a launch would take along to another host.
_PROBE_VARIABLES = ("NCCL_", "GLOO_", "TORCH_", "PYTORCH_", "PYTHONPATH", "LD_LIBRARY_PATH", "OMP_NUM_THREADS")


class SshBackend(Backend):
    name = "ssh"
    order = 10
    where = "over ssh"
    tool = "ssh"
    takes_hosts = True

    def claims(self, settings: JobSettings, environ: Mapping[str, str]) -> Claim:  # noqa: ARG002
        return Claim(bool(settings.hosts))

    def place(self, settings: JobSettings, environ: Mapping[str, str], host: str) -> Placed:  # noqa: ARG002
        from distdbg.launch.plan.place import Location

        hosts = _hosts(settings)
        if isinstance(settings.nproc_per_node, str):
            raise UsageError(
                f"--nproc-per-node {settings.nproc_per_node}: what other hosts have is not known before they are "
                "reached",
                "Say how many ranks each host runs.",
            )
        return Placed(Location(self.name, hosts, _PORT), settings.model_copy(update={"nodes": len(hosts)}))

    def nodes(self, start: Start) -> RemoteNodes:
        """One client a host. sshd brings next to no environment along: it goes with the orders, seen by nobody."""
        from distdbg.launch.backends.carriers import Carrier
        from distdbg.launch.backends.remote import agent_command, environment_along, remote_nodes
        from distdbg.launch.backends.ssh.command import ssh_command

        run, plan = start.run, start.plan
        carriers = [
            Carrier(
                ssh_command(host, agent_command(run, node), {}),
                (node,),
                (host,),
                os.environ,
                run.carrier_log(host) if plan.capture else None,
            )
            for node, host in enumerate(plan.place.hosts)
        ]
        return remote_nodes(start, carriers, environment_along())

    def dry_run(self, plan: Plan) -> str:
        from distdbg.launch.backends.ssh.dry_run import render_ssh

        return render_ssh(plan)

    def claims_probes(self, options: ProbeOptions) -> bool:
        return bool(options.hosts)

    def probes(self, options: ProbeOptions) -> tuple[ProbeCommand, ...]:
        from distdbg.launch.backends.probes import ProbeCommand, need_tool, probe_command
        from distdbg.launch.backends.ssh.command import ssh_command

        hosts = options.hosts
        if not hosts:
            raise UsageError("--on ssh does not know which hosts", "Name them: --hosts a,b")
        need_tool(self)
        twice = sorted({host for host in hosts if hosts.count(host) > 1})
        if twice:
            raise UsageError(f"--hosts names {twice[0]!r} twice", "Each host is one node.")
        if any(host.startswith("-") or not host for host in hosts):
            raise UsageError(f"--hosts {','.join(hosts)!r} is not a list of hosts", "Write --hosts a,b")
        if options.nodes is not None and options.nodes != len(hosts):
            raise UsageError(f"--nodes is {options.nodes}, and --hosts names {len(hosts)}", "Leave --nodes out.")
        env = {name: value for name, value in os.environ.items() if name.startswith(_PROBE_VARIABLES)}
        names = [host.rpartition("@")[2] for host in hosts]
        return tuple(
            ProbeCommand(
                (name,),
                1,
                tuple(ssh_command(host, probe_command(options, name, options.port), env, options.ssh_options)),
            )
            for host, name in zip(hosts, names, strict=True)
        )


def _hosts(settings: JobSettings) -> tuple[str, ...]:
    hosts = tuple(settings.hosts)
    if not hosts:
        raise UsageError("--on ssh: no hosts are named", "Name them with --hosts a,b or a file that lists them.")
    if "nodes" in settings.model_fields_set:
        if settings.nodes > len(hosts):
            wrong = f"{settings.nodes} nodes are asked for, and {len(hosts)} hosts are named"
            raise UsageError(wrong, "Name more hosts, or ask for fewer nodes.")
        hosts = hosts[: settings.nodes]
    if len(set(hosts)) < len(hosts):
        twice = next(host for host in hosts if hosts.count(host) > 1)
        raise UsageError(f"{twice} is named twice", "A host runs one agent; more ranks on it are --nproc-per-node.")
    return hosts
