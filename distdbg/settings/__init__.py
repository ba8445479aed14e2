"""The settings of `distdbg launch`, by the command line or by a job file: one model, one docstring a field.

Command line over job file over preset. A job file is YAML:

    script: train.py
    args: [--lr, 1e-3]
    nodes: 2
    presets: [debug]
    env: {NCCL_SOCKET_IFNAME: ib0}
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _without_plugins() -> Iterator[None]:
    """pydantic looks for plugins in the metadata of all that is installed, some hundred files and often on a shared
    disk, and imports what it finds: these models want none of it. The ranks' environment stays as it was."""
    name = "PYDANTIC_DISABLE_PLUGINS"
    before = os.environ.get(name)
    os.environ[name] = "__all__"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


with _without_plugins():
    from distdbg.settings.job import JobSettings
    from distdbg.settings.settling import settle
    from distdbg.settings.slurm import SlurmSettings

__all__ = ["JobSettings", "SlurmSettings", "settle"]
