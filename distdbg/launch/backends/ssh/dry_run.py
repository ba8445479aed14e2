"""A plan for hosts that ssh reaches, as shell: one client a host. Pure."""

from __future__ import annotations

from pathlib import Path

from distdbg.launch.backends.remote_shell import remote_shell
from distdbg.launch.plan.dry_run import quote
from distdbg.launch.plan.job import Plan


def render_ssh(plan: Plan) -> str:
    shell = remote_shell(plan, "ssh")
    lines = list(shell.head)
    script = [f"cd {quote(str(Path.cwd()))}", shell.address, *shell.exports, shell.command]
    text = quote("\n".join(script))
    for number, host in enumerate(plan.place.hosts):
        lines.append(f"printf 'NODE=%s FIRST=%s\\n%s\\n' {number} \"$FIRST\" {text} | ssh {quote(host)} bash &")
    return "\n".join([*lines, "wait"])
