"""Looks at this machine for the plan: CPUs, GPUs, torch. None of them is imported or initialised."""

from __future__ import annotations

import os

from distdbg.launch.plan.topology import Gpu, MachineFacts


def look() -> MachineFacts:
    from distdbg.collect.machine.cpus import usable_cpus
    from distdbg.collect.machine.gpus import devices
    from distdbg.collect.machine.versions import torch_version

    gpus = tuple(Gpu(d.index, d.uuid, tuple(instance.uuid for instance in d.instances)) for d in devices())
    return MachineFacts(cpus=usable_cpus(), gpus=gpus, torch=torch_version(), allowed_cpus=len(os.sched_getaffinity(0)))
