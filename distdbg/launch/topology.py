"""How many ranks, on which GPUs, with how many threads. Pure: works on what `MachineFacts` says of the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distdbg.errors import UsageError
from distdbg.settings import JobSettings

#: More ranks than this for each CPU is a slip of the keyboard, not a test.
_MOST_RANKS_A_CPU = 64


@dataclass(frozen=True)
class MachineFacts:
    """What the plan needs to know of this machine. `gpus` are the devices that CUDA_VISIBLE_DEVICES would name."""

    cpus: int
    gpus: tuple[str, ...] = ()
    torch: str | None = None


@dataclass(frozen=True)
class Shares:
    """`gpus` has one tuple of devices a local node, or is empty where there is nothing to deal out."""

    nproc_per_node: int
    gpus: tuple[tuple[str, ...], ...]
    omp_threads: int | None


def visible_gpus(devices: Sequence[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Devices as CUDA sees them: CUDA_VISIBLE_DEVICES by index, UUID or MIG id; its list ends at the first bad one.

    `devices` are the machine's own, as indices or MIG ids. Source: CUDA C++ programming guide, environment variables.
    """
    listed = environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return tuple(devices)
    found: list[str] = []
    for word in (w.strip() for w in listed.split(",")):
        known = word.startswith(("GPU-", "MIG-")) or (word.isdigit() and int(word) < len(devices))
        if not word or not known:
            break
        found.append(word)
    return tuple(found) if devices else ()


def share_out(settings: JobSettings, machine: MachineFacts, environ: Mapping[str, str]) -> Shares:
    """Ranks a node, each local node's GPUs, and CPU threads a rank. Raises UsageError for what cannot be."""
    nodes, asked = settings.nodes, settings.nproc_per_node
    per_node = len(machine.gpus) // nodes
    if asked == "gpu" and not machine.gpus:
        raise UsageError("--nproc-per-node gpu: this machine shows no GPU", "Use a number, or auto.")
    if asked in ("auto", "gpu"):
        nproc = max(1, per_node)
    elif asked == "cpu":
        nproc = machine.cpus
    else:
        nproc = int(asked)
    if machine.gpus and nproc > max(per_node, 0):
        raise UsageError(
            f"{nodes} nodes x {nproc} ranks need {nodes * nproc} GPUs and {len(machine.gpus)} are visible: "
            "NCCL refuses two ranks on one GPU",
            "Ask for fewer ranks, or hide the GPUs with CUDA_VISIBLE_DEVICES= to train on the CPU.",
        )
    if nodes * nproc > _MOST_RANKS_A_CPU * machine.cpus:
        raise UsageError(
            f"{nodes} nodes x {nproc} ranks are {nodes * nproc} processes on {machine.cpus} CPUs",
            f"At most {_MOST_RANKS_A_CPU} ranks a CPU are started on one machine.",
        )
    gpus = tuple(tuple(machine.gpus[n * nproc : (n + 1) * nproc]) for n in range(nodes)) if machine.gpus else ()
    threads = None if "OMP_NUM_THREADS" in environ or gpus else max(1, machine.cpus // (nodes * nproc))
    return Shares(nproc, gpus if nodes > 1 else (), threads)
