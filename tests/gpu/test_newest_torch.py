"""What depends on torch's internals, with the newest torch: the CUDA build of the GPU box, with no device to see."""

import sys

import pytest

from gpu_box.box import gpu_box
from gpu_box.build import TORCH
from tests.conftest import run_command
from tests.gpu.fixtures import need_box

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


@pytest.mark.timeout(900)
def test_all_guards(distdbg, tmp_path):
    """FSDP2 keeps its mixed precision elsewhere than in torch 2.13."""
    with gpu_box(need_box(TORCH), devices=1, memory="1G") as box:
        env = box.environment() | {"CUDA_VISIBLE_DEVICES": ""}
        told = run_command([sys.executable, "-c", "import torch; print(torch.__version__)"], tmp_path, env=env)
        assert told.out.startswith(TORCH)
        done = distdbg("guards", "--selftest", env=env, timeout=880)
    assert done.code == 0, [line for line in done.out.splitlines() if line.startswith("WRONG")]
