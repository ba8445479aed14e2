"""What `distdbg launch` can be told, by the command line or by a job file: one model, one docstring a field.

Command line over job file over preset. A job file is YAML:

    script: train.py
    args: [--lr, 1e-3]
    nodes: 2
    presets: [debug]
    env: {NCCL_SOCKET_IFNAME: ib0}
"""

from distdbg.settings.job import JobSettings
from distdbg.settings.settling import settle
from distdbg.settings.slurm import SlurmSettings

__all__ = ["JobSettings", "SlurmSettings", "settle"]
