"""Run torchrun with the path that its own script has: neither the working directory nor a folder of ours is on it.

    python <absolute>/distdbg/launch/agent/torchrun.py torchrun's arguments

`python -m torch.distributed.run` would import a queue.py or torch.py of the working directory. The logs-specs plugin is
the one next to this file: an image may have no distdbg, or an older one. The ranks that torchrun starts see nothing of
this.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    if sys.path[:1] == [__file__.rpartition("/")[0]]:  # not under PYTHONSAFEPATH
        sys.path[0] = sys.executable.rpartition("/")[0]
    sys.path.insert(0, __file__.rsplit("/", 4)[0])
    import distdbg  # noqa: F401 -- from now on its modules are found without the path

    del sys.path[0]

import runpy
from importlib import metadata
from typing import Any

_OURS = metadata.EntryPoint("distdbg", "distdbg.launch.agent.logs_specs:AgentLogsSpecs", "torchrun.logs_specs")


def _entry_points(**wanted: Any) -> metadata.EntryPoints:  # noqa: ANN401 -- typeshed's own for it
    """The first of a name is taken."""
    installed = (entry for one in metadata.distributions() for entry in one.entry_points)
    return metadata.EntryPoints((_OURS, *installed)).select(**wanted)


if __name__ == "__main__":
    metadata.entry_points = _entry_points  # type: ignore[assignment]
    runpy.run_module("torch.distributed.run", run_name="__main__", alter_sys=True)
