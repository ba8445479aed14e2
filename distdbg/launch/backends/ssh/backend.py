"""The `ssh` backend: the named hosts, one node each, through the user's own OpenSSH client and configuration."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from distdbg.errors import UsageError
from distdbg.launch.backends.interface import Backend, Claim, Placed, ProbeCommand, ProbeOptions

if TYPE_CHECKING:
    from distdbg.launch.backends.nodes import AttemptStart
    from distdbg.launch.backends.remote_nodes import RemoteNodes
    from distdbg.launch.plan.job import Plan
    from distdbg.settings import JobSettings

#: What no login shell (sh, csh, fish) changes between single quotes.
_PLAIN = re.compile(rb"[ -~]")
_NOT_PLAIN = rb"'\!"
#: ssh asks no question, since no person can answer, and a host that is off is detected in seconds.
_OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
#: Where the search for a free port on the first host begins: torchrun's own default.
_PORT = 29400
#: What a launch would take along to another host.
_PROBE_VARIABLES = ("NCCL_", "GLOO_", "TORCH_", "PYTORCH_", "PYTHONPATH", "LD_LIBRARY_PATH", "OMP_NUM_THREADS")


def ssh_command(host: str, argv: Sequence[str], env: Mapping[str, str], options: Sequence[str] = ()) -> list[str]:
    """The local command line that runs `argv` on `host` with `env` added to the environment that it finds there.

    Every word arrives as it is, bytes that are no UTF-8 included, whatever the login shell. Options of ssh's own (`-F
    file`) go before ours: ssh takes the first of each. What stands in `env` can be seen by others in the process list.
    """
    words = ["exec", *(["env", *(f"{name}={value}" for name, value in env.items())] if env else []), *argv]
    script = " ".join(word if word == "exec" else shlex.quote(word) for word in words)
    # The login shell sees plain characters alone; sh puts the others back and reads the words.
    remote = f"exec /bin/sh -c 'eval \"$(printf %b \"$0\")\"' '{_plain(script)}'"
    return ["ssh", *options, *_OPTIONS, "--", host, remote]


def _plain(script: str) -> str:
    """Quote a script for printf's %b: characters that a shell could change are written as octal."""
    return "".join(
        chr(byte) if _PLAIN.match(bytes([byte])) and byte not in _NOT_PLAIN else f"\\0{byte:03o}"
        for byte in os.fsencode(script)
    )


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

    def nodes(self, start: AttemptStart) -> RemoteNodes:
        """One client for each host. sshd forwards almost no environment: it goes with the orders, hidden from other
        users."""
        from distdbg.launch.backends.carriers import Carrier, agent_command, environment_along
        from distdbg.launch.backends.remote_nodes import RemoteNodes

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
        return RemoteNodes(start, carriers, environment_along())

    def dry_run(self, plan: Plan) -> str:
        from distdbg.launch.plan.dry_run import remote_shell
        from distdbg.launch.plan.shell_words import quote

        shell = remote_shell(plan, "ssh")
        script = [f"cd {quote(str(Path.cwd()))}", shell.address, *shell.exports, shell.command]
        text = quote("\n".join(script))
        clients = [
            f"printf 'NODE=%s FIRST=%s\\n%s\\n' {number} \"$FIRST\" {text} | ssh {quote(host)} bash &"
            for number, host in enumerate(plan.place.hosts)
        ]
        return "\n".join([*shell.head, *clients, "wait"])

    def claims_probes(self, options: ProbeOptions) -> bool:
        return bool(options.hosts)

    def probes(self, options: ProbeOptions) -> tuple[ProbeCommand, ...]:
        hosts = options.hosts
        if not hosts:
            raise UsageError("--on ssh does not know which hosts", "Name them: --hosts a,b")
        self.need_tool()
        twice = sorted({host for host in hosts if hosts.count(host) > 1})
        if twice:
            raise UsageError(f"--hosts names {twice[0]!r} twice", "Each host is one node.")
        if options.nodes is not None and options.nodes != len(hosts):
            raise UsageError(f"--nodes is {options.nodes}, and --hosts names {len(hosts)}", "Leave --nodes out.")
        env = {name: value for name, value in os.environ.items() if name.startswith(_PROBE_VARIABLES)}
        names = [host.rpartition("@")[2] for host in hosts]
        return tuple(
            ProbeCommand(
                (name,),
                1,
                tuple(ssh_command(host, options.command(name, options.port), env, options.ssh_options)),
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
