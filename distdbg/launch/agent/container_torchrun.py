"""torchrun in an image without distdbg: the agent's own copy replaces the installed entry point.

    python <absolute>/distdbg/launch/agent/container_torchrun.py torchrun's arguments

An older distdbg in the image is not asked. The ranks that torchrun starts see nothing of this.
"""

from __future__ import annotations

import runpy
import sys
from importlib import metadata
from typing import Any

_OURS = metadata.EntryPoint("distdbg", "distdbg.launch.agent.logs_specs:AgentLogsSpecs", "torchrun.logs_specs")


def _entry_points(**wanted: Any) -> metadata.EntryPoints:  # noqa: ANN401 -- typeshed's own for it
    """The first of a name is taken."""
    installed = (entry for one in metadata.distributions() for entry in one.entry_points)
    return metadata.EntryPoints((_OURS, *installed)).select(**wanted)


if __name__ == "__main__":
    sys.path[0] = sys.path[0].rsplit("/distdbg/", 1)[0]
    metadata.entry_points = _entry_points  # type: ignore[assignment]
    runpy.run_module("torch.distributed.run", run_name="__main__", alter_sys=True)
