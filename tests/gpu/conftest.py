"""GPUs for the tests of this folder: those of the GPU box, or real ones where DISTDBG_GPUS=hardware asks for them.

Fixtures
    gpus(devices=2, memory="8G", faults={1: "…"})   what a test needs; on hardware, a test that plants a fault or needs
                                                    more devices than there are is skipped
    figure(name, value)                             a measured value, for the table of `make gpu-check`
    keep(name, text)                                a file of evidence, kept beside the figures

On hardware `memory` is ignored: the devices are as large as they are.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from distdbg.rundir import RunDir
from tests.conftest import Command, Finished
from tests.gpu.fixtures import NO_VALUES

HARDWARE = os.environ.get("DISTDBG_GPUS") == "hardware"
#: File for the figures, one object a line
FIGURES = os.environ.get("DISTDBG_GPU_FIGURES")

BEGIN = """
import os, sys, time
import torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
"""
STEP = """
    optimizer.zero_grad()
    model(torch.randn(8, 64, device="cuda")).square().mean().backward()
    optimizer.step()
"""
END = "dist.destroy_process_group()\n"


@dataclass(frozen=True)
class Gpus:
    """Devices for a test, and how it runs distdbg on them."""

    simulated: bool
    devices: int
    distdbg: Command
    folder: Path
    env: dict[str, str] = field(default_factory=dict)

    def run(self, *words: str | Path, **options: object) -> Finished:
        env = {**self.env, **options.pop("env", {})}  # type: ignore[dict-item]
        if words[0] == "launch" and self.env.get("GPU_BOX_SHADOW") == "0":
            words = ("launch", *NO_VALUES, *words[1:])
        return self.distdbg(*words, env=env, **options)

    @property
    def environ(self) -> dict[str, str]:
        """Of a process that sees the devices."""
        return {**os.environ, **self.env}

    def report(self) -> dict[str, Any]:
        """Of the newest run."""
        found: dict[str, Any] = json.loads(RunDir(self.folder / "distdbg-runs" / "latest").report_json.read_text())
        return found

    def launch(self, script: str, *words: str | Path, ranks: int | str = 1, **options: object) -> tuple[Finished, dict]:
        """Write `script` to train.py and launch it: the ended command and the report."""
        (self.folder / "train.py").write_text(script)
        options.setdefault("timeout", 180)
        done = self.run("launch", "--nproc-per-node", str(ranks), *words, "train.py", **options)
        return done, self.report()


def ids(report: Mapping[str, Any]) -> list[str]:
    """Of the findings, the root first."""
    return [finding["id"] for finding in report["findings"]]


def line_of(script: str, words: str) -> int:
    """Number of the only line that has these words."""
    (number,) = [n for n, line in enumerate(script.splitlines(), 1) if words in line]
    return number


def _real_devices() -> int:
    if shutil.which("nvidia-smi") is None:
        return 0
    import torch

    return torch.cuda.device_count()


@pytest.fixture
def gpus(distdbg: Command, tmp_path: Path, request: pytest.FixtureRequest, box_torch: str) -> Callable[..., Gpus]:
    def make(devices: int = 1, **options: object) -> Gpus:
        if not HARDWARE:
            box = request.getfixturevalue("gpu_box")(devices=devices, **options)
            return Gpus(True, devices, distdbg, tmp_path, box.environment())
        if options.get("faults"):
            pytest.skip("a fault is planted: not on hardware")
        if _real_devices() < devices:
            pytest.skip(f"{devices} devices are needed, this machine has {_real_devices()}")
        return Gpus(False, devices, distdbg, tmp_path)

    return make


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str, object], None]:
    def write(name: str, value: object) -> None:
        if FIGURES:
            test = request.node.nodeid.rpartition("::")[2]
            with Path(FIGURES).open("a") as file:
                file.write(json.dumps({"test": test, "figure": name, "value": value}) + "\n")

    return write


@pytest.fixture
def keep() -> Callable[[str, str], None]:
    def write(name: str, text: str) -> None:
        if FIGURES:
            Path(FIGURES).with_suffix("").mkdir(exist_ok=True)
            (Path(FIGURES).with_suffix("") / name).write_text(text)

    return write
