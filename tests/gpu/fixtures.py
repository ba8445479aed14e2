"""The fixture `gpu_box`: simulated GPUs for one test, with real torch, NCCL's process group and allocator on them.

The torch is the newest of `TESTED`, or that of DISTDBG_BOX_TORCH. A test with the mark `EACH_TORCH` runs with all of
`TESTED`; on hardware once, with the torch that is installed.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from distdbg.rehearse.devices import GUARDS_OF_VALUES
from gpu_box.box import GpuBox
from gpu_box.box import gpu_box as new_box
from gpu_box.build import TESTED, TORCH, NotPossible, build, cache
from tests import fork_server

#: Options of a launch on devices that compute no values.
NO_VALUES = tuple(word for guard in GUARDS_OF_VALUES for word in ("--guard", f"{guard}=off"))
#: Found before a test has a home of its own.
_CACHE = cache()
_TORCH = os.environ.get("DISTDBG_BOX_TORCH") or TORCH
EACH_TORCH = pytest.mark.parametrize(
    "box_torch", ["installed"] if os.environ.get("DISTDBG_GPUS") == "hardware" else TESTED
)


@functools.cache
def need_box(torch: str = _TORCH) -> Path:
    """The folder of the built box; the test is skipped where it cannot be built, which CI counts as a failure."""
    try:
        root = build(torch, folder=_CACHE)
    except NotPossible as error:
        pytest.skip(f"no GPU box: {error}")
    fork_server.start(GpuBox(root, root).environment({"PYTHONPATH": str(fork_server.AT_EXIT)}))
    return root


@pytest.fixture
def box_torch() -> str:
    """The version of torch on the simulated GPUs of a test."""
    return _TORCH


@pytest.fixture
def gpu_box(box_torch: str) -> Iterator[Callable[..., GpuBox]]:
    """`gpu_box(devices=4, memory="8G", faults={1: "kernel-hang at=3"})`; all boxes of a test are removed at its end."""
    with ExitStack() as boxes:
        yield lambda **options: boxes.enter_context(new_box(need_box(box_torch), **options))
