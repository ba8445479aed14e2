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
from collections.abc import Iterable
from importlib import metadata
from typing import NoReturn

_NAME = "distdbg-agent"


class _Plugin(metadata.Distribution):
    """A distribution without files, with the logs-specs plugin as its only entry point."""

    def read_text(self, filename: str) -> str | None:
        if filename == "METADATA":
            return f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: 0\n"
        entry = "[torchrun.logs_specs]\ndistdbg = distdbg.launch.agent.logs_specs:AgentLogsSpecs\n"
        return entry if filename == "entry_points.txt" else None

    def locate_file(self, path: object) -> NoReturn:
        raise FileNotFoundError(path)


class _PluginFinder(metadata.DistributionFinder):
    """Shows the plugin to importlib.metadata, before what is installed: torch takes the first entry point of a name."""

    def find_spec(self, *_module: object) -> None:
        """It finds no module."""

    def find_distributions(
        self,
        context: metadata.DistributionFinder.Context = metadata.DistributionFinder.Context(),  # noqa: B008 -- inherited
    ) -> Iterable[metadata.Distribution]:
        return (_Plugin(),) if context.name in (None, _NAME) else ()


if __name__ == "__main__":
    sys.meta_path.insert(0, _PluginFinder())
    runpy.run_module("torch.distributed.run", run_name="__main__", alter_sys=True)
