"""The kinds of GPUs that can be simulated: what a program can ask of a device, from NVIDIA's public data sheets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: Numbers of cudaDeviceAttr.
_PROCESSORS, _L2_BYTES, _THREADS, _MAJOR, _MINOR, _SHARED, _SHARED_OF_BLOCK = 16, 38, 39, 75, 76, 81, 97
_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class GpuKind:
    """`memory` in bytes; `attributes`, by their numbers in cudaDeviceAttr, are those that an H100 has otherwise."""

    name: str
    memory: int
    attributes: Mapping[int, int] = field(default_factory=dict)


def _attributes(
    capability: tuple[int, int], processors: int, l2_mib: int, shared_kib: int, threads: int = 2048
) -> dict[int, int]:
    """`shared_kib` and `threads` are of a multiprocessor; a block can have 1 KiB of shared memory less."""
    major, minor = capability
    return {
        _PROCESSORS: processors, _L2_BYTES: l2_mib * _MIB, _THREADS: threads, _MAJOR: major, _MINOR: minor,
        _SHARED: shared_kib * _KIB, _SHARED_OF_BLOCK: (shared_kib - 1) * _KIB,
    }  # fmt: skip


GPUS = {
    "h100": GpuKind("NVIDIA H100 80GB HBM3", 80 * _GIB),
    "h200": GpuKind("NVIDIA H200", 140 * _GIB),
    "b200": GpuKind("NVIDIA B200", 179 * _GIB, _attributes((10, 0), 148, 126, 228)),
    "a100": GpuKind("NVIDIA A100-SXM4-80GB", 80 * _GIB, _attributes((8, 0), 108, 40, 164)),
    "a100-40gb": GpuKind("NVIDIA A100-SXM4-40GB", 40 * _GIB, _attributes((8, 0), 108, 40, 164)),
    "l40s": GpuKind("NVIDIA L40S", 44 * _GIB, _attributes((8, 9), 142, 96, 100, 1536)),
}
DEFAULT = "h100"
