"""Decide how many ranks run, on which GPUs, with how many threads, from the machine's `MachineFacts`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distdbg.errors import UsageError
from distdbg.protocol import chosen_ranks
from distdbg.settings import JobSettings
from distdbg.wording import counted

#: More ranks than this for each CPU is a slip of the keyboard, not a test.
_MOST_RANKS_A_CPU = 64
_TRUE = ("1", "true", "yes", "on")


@dataclass(frozen=True)
class Gpu:
    """One device of the machine. `instances` are the UUIDs of its MIG instances where MIG is on, else empty."""

    index: int
    uuid: str = ""
    instances: tuple[str, ...] = ()


@dataclass(frozen=True)
class MachineFacts:
    """What the plan needs to know of this machine.

    `cpus` is what this process may really use, quota included; `allowed_cpus` what torchrun's `cpu` counts (0: the
    same). `gpus` are all devices of the machine, whatever CUDA_VISIBLE_DEVICES says.
    """

    cpus: int
    gpus: tuple[Gpu, ...] = ()
    torch: str | None = None
    allowed_cpus: int = 0


@dataclass(frozen=True)
class Shares:
    """What each local node gets. `nproc` is torchrun's word for it; `nproc_per_node` None where only torch can count.

    `gpus` has one tuple of devices a local node, and is empty where nothing is dealt out; `visible` are all that the
    job may use. `omp_threads` is None where OMP_NUM_THREADS is not ours to set.
    """

    nproc: str
    nproc_per_node: int | None
    gpus: tuple[tuple[str, ...], ...] = ()
    visible: tuple[str, ...] = ()
    omp_threads: int | None = None
    notes: tuple[str, ...] = ()


def visible_gpus(gpus: Sequence[Gpu], environ: Mapping[str, str]) -> tuple[str, ...]:
    """The devices that a job may use, in the words that CUDA_VISIBLE_DEVICES takes.

    The variable is read as CUDA and torch.cuda read it: indices, beginnings of UUIDs or MIG ids; the list ends at the
    first word that names nothing (`-1`, `NoDevFiles`, an empty one), and a word that occurs twice empties it.
    Source: CUDA C++ programming guide, CUDA environment variables; torch.cuda._parse_visible_devices.
    """
    listed = environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return tuple(word for gpu in gpus for word in _words(gpu))
    found: list[str] = []
    for text in listed.split(","):
        words = _named(gpus, text.strip())
        if not words:
            break
        if set(words) & set(found):
            return ()
        found += words
    return tuple(found)


def _words(gpu: Gpu) -> tuple[str, ...]:
    return gpu.instances or (str(gpu.index),)


def _named(gpus: Sequence[Gpu], text: str) -> tuple[str, ...]:
    """What one word of the list names; empty for nothing."""
    if text.startswith("MIG-"):
        known = [i for gpu in gpus for i in gpu.instances]
        return (text,) if text in known or (gpus and text.startswith("MIG-GPU-")) else ()
    if text.startswith("GPU-"):
        fits = [gpu for gpu in gpus if gpu.uuid.startswith(text)]
        return (fits[0].instances or (text,)) if len(fits) == 1 else ()
    number = re.match(r"\+?\d+", text)  # as strtoul: `1gpu` is 1
    fits = [gpu for gpu in gpus if number and gpu.index == int(number.group())]
    return _words(fits[0]) if fits else ()


def share_out(settings: JobSettings, machine: MachineFacts, environ: Mapping[str, str]) -> Shares:
    """Ranks a node, each local node's GPUs, and CPU threads a rank. Raises UsageError for what cannot be."""
    environ = {**environ, **settings.env}
    nodes, asked = settings.nodes, settings.nproc_per_node
    visible = visible_gpus(machine.gpus, environ)
    usable = _usable_a_node(visible, nodes, settings)
    if asked == "xpu":
        return Shares("xpu", None)
    if asked == "gpu" and not visible:
        raise UsageError("--nproc-per-node gpu: this machine shows no GPU", "Use a number, or auto.")
    counts = {"auto": max(1, usable), "gpu": max(1, usable), "cpu": machine.allowed_cpus or machine.cpus}
    nproc = counts[asked] if isinstance(asked, str) else asked
    on_cpu = not visible or (nproc > usable and _means_cpu(settings, environ))
    if not on_cpu and nproc > usable and chosen_ranks.VARIABLE not in environ:  # those have other nodes' GPUs, too
        raise _too_few_gpus(nodes, nproc, visible, usable)
    if nodes * nproc > _MOST_RANKS_A_CPU * machine.cpus:
        raise UsageError(
            f"{counted(nodes, 'node')} x {counted(nproc, 'rank')} are {nodes * nproc} processes on "
            f"{counted(machine.cpus, 'CPU')}",
            f"At most {_MOST_RANKS_A_CPU} ranks a CPU are started on one machine.",
        )
    # A fair share of the CPUs. One rank alone is left as torchrun leaves it: torch counts the cores itself.
    fair = on_cpu and "OMP_NUM_THREADS" not in environ and nodes * nproc > 1
    threads = max(1, machine.cpus // (nodes * nproc)) if fair else None
    share = len(visible) // nodes  # equal shares in order; what is left over is used by none
    dealt = tuple(visible[n * share : (n + 1) * share] for n in range(nodes)) if nodes > 1 and not on_cpu else ()
    return Shares(str(nproc), nproc, dealt, visible, threads, tuple(_notes(visible, dealt, on_cpu, threads, machine)))


def _usable_a_node(visible: Sequence[str], nodes: int, settings: JobSettings) -> int:
    """How many ranks of a node get a GPU of their own. A process sees at most one MIG instance."""
    share = len(visible) // nodes
    one_only = any(word.startswith("MIG-") for word in visible) and "virtual-local-rank" not in settings.torchrun
    return min(share, 1) if one_only else share


def _means_cpu(settings: JobSettings, environ: Mapping[str, str]) -> bool:
    """Whether the program's arguments or environment say that it uses no GPU."""
    words = {part for arg in settings.args for part in (arg, arg.partition("=")[2])}
    return "gloo" in words or environ.get("ACCELERATE_USE_CPU", "").lower() in _TRUE


def _too_few_gpus(nodes: int, nproc: int, visible: Sequence[str], usable: int) -> UsageError:
    wanted = f"{counted(nodes, 'node')} x {counted(nproc, 'rank')} need {counted(nodes * nproc, 'GPU')}"
    hint = "Ask for fewer ranks; to train on the CPU, hide the GPUs: --env CUDA_VISIBLE_DEVICES="
    if len(visible) // nodes > usable:
        why = "and a process sees one MIG instance of those listed"
        return UsageError(f"{wanted}, {why}", f"{hint}; or give each rank its own: --virtual-local-rank")
    have = f"{len(visible)} {'is' if len(visible) == 1 else 'are'} visible"
    return UsageError(f"{wanted} and {have}: NCCL refuses two ranks on one GPU", hint)


def _notes(
    visible: Sequence[str],
    dealt: Sequence[Sequence[str]],
    on_cpu: bool,
    threads: int | None,
    machine: MachineFacts,
) -> list[str]:
    notes: list[str] = []
    left = visible[sum(len(share) for share in dealt) :] if dealt else ()
    if left:
        notes.append(f"no node uses GPU {', '.join(left)}: {len(visible)} GPUs over {len(dealt)} nodes, equal shares")
    if visible and on_cpu:
        notes.append(f"more ranks than GPUs ({len(visible)}): the arguments or the environment ask for the CPU")
    if threads is not None:
        notes.append(f"OMP_NUM_THREADS={threads}: {counted(machine.cpus, 'CPU')} shared out over the ranks here")
    return notes


def look_at_machine() -> MachineFacts:
    """Collect the facts of this machine. Initialises no GPU library and does not import torch."""
    from distdbg.collect.machine.cgroups import usable_cpus
    from distdbg.collect.machine.gpus import devices
    from distdbg.collect.machine.versions import torch_version

    gpus = tuple(Gpu(d.index, d.uuid, tuple(instance.uuid for instance in d.instances)) for d in devices())
    return MachineFacts(cpus=usable_cpus(), gpus=gpus, torch=torch_version(), allowed_cpus=len(os.sched_getaffinity(0)))
