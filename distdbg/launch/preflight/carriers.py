"""Which nodes a preflight looks at, and the command line that starts a probe on each."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from distdbg.errors import ToolMissing, UsageError
from distdbg.launch.preflight.srun import ask_for, step_on
from distdbg.launch.slurm.hostlist import expand
from distdbg.launch.ssh import ssh_command

Kind = Literal["local", "ssh", "slurm"]
_PROBE = Path(__file__).resolve().parents[2] / "collect" / "preflight" / "probe.py"
#: What a launch would take along to another host.
_TAKEN_ALONG = ("NCCL_", "GLOO_", "TORCH_", "PYTORCH_", "PYTHONPATH", "LD_LIBRARY_PATH", "OMP_NUM_THREADS")


@dataclass(frozen=True)
class Carried:
    """One process here that runs a probe on each of `names`; where Slurm chooses the nodes, on `count` of them."""

    names: tuple[str, ...]
    count: int
    argv: tuple[str, ...]


@dataclass(frozen=True)
class Wish:
    """What was asked for: `folder` is where runs go, `token` a file in it, `port` 0 for any."""

    nodes: int | None
    hosts: tuple[str, ...]
    folder: Path
    token: str = ""
    port: int = 0
    ssh_options: tuple[str, ...] = ()


def choose(on: str, wish: Wish, environ: Mapping[str, str]) -> Kind:
    """Raises UsageError for what does not fit together, ToolMissing for what is not installed."""
    inside = "SLURM_JOB_ID" in environ and shutil.which("srun") is not None
    if wish.hosts and on not in ("auto", "ssh"):
        raise UsageError(f"--hosts names hosts to reach by ssh, and --on is {on}", "Leave one of them out.")
    if on == "ssh" and not wish.hosts:
        raise UsageError("--on ssh does not know which hosts", "Name them: --hosts a,b")
    if on == "auto":
        asks = (wish.nodes or 1) > 1 and shutil.which("srun") is not None
        on = "ssh" if wish.hosts else "slurm" if inside or asks else "local"
    tool = {"ssh": "ssh", "slurm": "srun"}.get(on)
    if tool is not None and shutil.which(tool) is None:
        raise ToolMissing(
            f"{tool} is not on PATH", f"Install it, or look from a machine that has it, to use --on {on}."
        )
    return "ssh" if on == "ssh" else "slurm" if on == "slurm" else "local"


def carry(kind: Kind, wish: Wish, environ: Mapping[str, str]) -> tuple[Carried, ...]:
    if kind == "ssh":
        return _by_ssh(wish, environ)
    if kind == "slurm":
        return _by_slurm(wish, environ)
    host = socket.gethostname()
    names = [host, *(f"{host}.{number}" for number in range(2, (wish.nodes or 1) + 1))]
    return tuple(
        Carried((name,), 1, tuple(_probe(wish, name, port=wish.port if name == host else 0))) for name in names
    )


def _by_ssh(wish: Wish, environ: Mapping[str, str]) -> tuple[Carried, ...]:
    hosts = wish.hosts
    twice = sorted({host for host in hosts if hosts.count(host) > 1})
    if twice:
        raise UsageError(f"--hosts names {twice[0]!r} twice", "Each host is one node.")
    if any(host.startswith("-") or not host for host in hosts):
        raise UsageError(f"--hosts {','.join(hosts)!r} is not a list of hosts", "Write --hosts a,b")
    if wish.nodes is not None and wish.nodes != len(hosts):
        raise UsageError(f"--nodes is {wish.nodes}, and --hosts names {len(hosts)}", "Leave --nodes out.")
    env = {name: value for name, value in environ.items() if name.startswith(_TAKEN_ALONG)}
    return tuple(
        Carried(
            (host.rpartition("@")[2],),
            1,
            tuple(ssh_command(host, _probe(wish, host.rpartition("@")[2], wish.port), env, wish.ssh_options)),
        )
        for host in hosts
    )


def _by_slurm(wish: Wish, environ: Mapping[str, str]) -> tuple[Carried, ...]:
    if "SLURM_JOB_ID" not in environ:
        count = wish.nodes or 1
        return (Carried((), count, tuple(ask_for(count, _probe(wish, None, wish.port)))),)
    folded = environ.get("SLURM_JOB_NODELIST", "")
    try:
        names = expand(folded)
    except ValueError as error:
        raise UsageError(f"SLURM_JOB_NODELIST={folded!r}: {error}", "Is this an allocation of Slurm's?") from None
    if not names:
        raise UsageError(
            "SLURM_JOB_ID is set, and SLURM_JOB_NODELIST names no node", "Is this an allocation of Slurm's?"
        )
    if wish.nodes is not None and wish.nodes > len(names):
        raise UsageError(f"--nodes is {wish.nodes}, and this allocation has {len(names)}", "Leave --nodes out.")
    return tuple(
        Carried((name,), 1, tuple(step_on(name, _probe(wish, name, wish.port)))) for name in names[: wish.nodes]
    )


def _probe(wish: Wish, name: str | None, port: int) -> Sequence[str]:
    words = [sys.executable, str(_PROBE), "--folder", os.fspath(wish.folder), "--port", str(port)]
    words += ["--name", name] if name else []
    return [*words, *(["--token", wish.token] if wish.token else [])]
