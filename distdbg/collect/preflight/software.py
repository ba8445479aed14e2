"""Read the software of this node: versions, interpreter, git commit, environment variables of NCCL, gloo and torch."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from distdbg.collect.machine.versions import git_state, versions

_STEERS = ("NCCL_", "GLOO_", "TORCH_", "PYTORCH_")
#: Right where they differ from node to node: what is there, and where files go.
_OWN = ("IFNAME", "HCA", "_FILE", "_DIR", "_PATH", "_CACHE", "_HOME", "_INDEX", "_NODE", "_PIPE")


def look(folder: Path) -> dict[str, Any]:
    """versions: name -> version; git: git_state's; environment: name -> value; python: the interpreter."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if (name.startswith(_STEERS) and not any(part in name for part in _OWN)) or name == "OMP_NUM_THREADS"
    }
    return {"versions": versions(), "git": git_state(folder), "environment": environment, "python": sys.executable}
