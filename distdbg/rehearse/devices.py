"""Simulated GPUs for a rehearsal. They are a distribution of their own, gpu_box: only this module imports it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distdbg.errors import ToolMissing

if TYPE_CHECKING:
    from gpu_box.box import GpuBox
    from gpu_box.gpus import GpuKind as GpuKind  # noqa: PLC0414 -- for the command, too

#: Guards that are on by default and read values, which simulated GPUs do not compute unless asked to.
GUARDS_OF_VALUES = ("weights-desynced", "non-finite", "loss-never-changes")
#: The kinds of GPUs by name; empty if gpu_box is not installed.
GPU_KINDS: Mapping[str, GpuKind] = {}
DEFAULT_KIND = ""
with suppress(ImportError):  # all other commands work without it
    from gpu_box import gpus

    GPU_KINDS, DEFAULT_KIND = gpus.GPUS, gpus.DEFAULT


def require_gpu_box() -> None:
    """Raise ToolMissing if gpu_box is not installed."""
    if not GPU_KINDS:
        raise ToolMissing(
            "rehearse needs the package distdbg-gpu-box, which is not installed",
            "Install it from a clone of distdbg's repository: pip install ./gpu_box",
        )


def set_up(report: Callable[[str], None]) -> Path:
    """Return the folder of the libraries, and make them first if they are not there. `report` is told of a download.

    Raises ToolMissing if they cannot be made.
    """
    from importlib.metadata import PackageNotFoundError, version

    from gpu_box.build import NotPossible, build, is_built

    try:
        torch = version("torch").partition("+")[0]
    except PackageNotFoundError:
        raise ToolMissing("torch is not installed", "Install the torch that your job uses.") from None
    if not is_built(torch):
        report(f"setting up simulated GPUs for torch {torch}, once: a download of 0.5 GB")
    try:
        return build(torch)
    except NotPossible as error:
        raise ToolMissing(
            f"simulated GPUs cannot be set up here: {error}", "docs/rehearse.md says what is needed."
        ) from None


def simulate(libraries: Path, **options: Any) -> AbstractContextManager[GpuBox]:  # noqa: ANN401
    """Return simulated GPUs, which end with the `with` block."""
    from gpu_box.box import gpu_box

    return gpu_box(libraries, **options)
