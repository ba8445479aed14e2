"""Fixture `run`: a program on a box. Homes, clean-up and the rules of CI are those of distdbg's tests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_box.box import GpuBox
from tests.conftest import (  # noqa: F401 -- fixtures and hooks
    Finished,
    box_torch,
    gpu_box,
    need,
    no_orphans,
    own_environment,
    own_home,
    pytest_ignore_collect,
    pytest_make_collect_report,
    pytest_runtest_makereport,
    pytest_runtest_setup,
    run_command,
)

HERE = Path(__file__).parent


@pytest.fixture
def run(gpu_box: Callable[..., GpuBox], tmp_path: Path) -> Callable[..., Finished]:  # noqa: F811
    """`run(program, *arguments, ranks=0, devices=2, …)`: as so many ranks ("2x4": on two nodes), or as one process."""

    def call(
        program: str | Path, *arguments: str, ranks: int | str = 0, env: dict[str, str] | None = None,
        timeout: float = 120, **options: object,
    ) -> Finished:  # fmt: skip
        each = int(str(ranks).rpartition("x")[2])
        box = gpu_box(**{"devices": max(each, 2), "memory": "8G", **options})
        start = [str(HERE / "ranks_of_one.py"), str(ranks)] if ranks else []
        environment = {**box.environment(), "OMP_NUM_THREADS": "1", **(env or {})}
        command = [sys.executable, *start, str(HERE / "demos" / program), *arguments]
        return run_command(command, tmp_path, env=environment, timeout=timeout)

    return call
