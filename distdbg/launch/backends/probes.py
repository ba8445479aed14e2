"""The options of a preflight, and the command lines that start its probes: what backends need of it."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from distdbg.errors import ToolMissing

if TYPE_CHECKING:
    from distdbg.launch.backends.interface import Backend

_PROBE = Path(__file__).resolve().parents[2] / "collect" / "preflight" / "probe.py"


@dataclass(frozen=True)
class ProbeCommand:
    """One process here that runs a probe on each of `names`; where a scheduler chooses the nodes, on `count` of them,
    for which it may wait `wait_s` seconds."""

    names: tuple[str, ...]
    count: int
    argv: tuple[str, ...]
    wait_s: float = 0.0


@dataclass(frozen=True)
class ProbeOptions:
    """What was asked for: `folder` is where runs go, `token` a file in it, `port` 0 for any."""

    nodes: int | None
    hosts: tuple[str, ...]
    folder: Path
    token: str = ""
    port: int = 0
    ssh_options: tuple[str, ...] = ()


def need_tool(backend: Backend) -> None:
    """Raise ToolMissing where the program that the backend needs is not installed."""
    if backend.tool and shutil.which(backend.tool) is None:
        raise ToolMissing(
            f"{backend.tool} is not on PATH",
            f"Install it, or look from a machine that has it, to use --on {backend.name}.",
        )


def probe_command(options: ProbeOptions, name: str | None, port: int) -> tuple[str, ...]:
    """`name` is the node's; None where the probe finds it itself."""
    words = [sys.executable, str(_PROBE), "--folder", os.fspath(options.folder), "--port", str(port)]
    words += ["--name", name] if name else []
    return (*words, *(["--token", options.token] if options.token else []))
