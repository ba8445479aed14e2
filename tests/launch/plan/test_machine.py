"""The command line on machines with GPUs, as NVML would show them (tests/fake_nvml)."""

import pytest

from tests.fake_nvml.library import fake_gpus

FOUR = "\n".join(f"gpu uuid=GPU-{n} mig=0" for n in range(4))
MIG = "gpu uuid=GPU-0 mig=1\nmig gpu=0 uuid=MIG-a\nmig gpu=0 uuid=MIG-b"


@pytest.fixture
def dry_run(distdbg, tmp_path):
    (tmp_path / "t.py").write_text("")

    def call(gpus, *options, **environ):
        return distdbg("launch", "--dry-run", *options, "t.py", env={**fake_gpus(tmp_path, gpus), **environ})

    return call


@pytest.mark.slow
def test_auto_is_the_number_of_gpus(dry_run):
    assert "--nproc-per-node 4" in dry_run(FOUR).out
    assert "--nproc-per-node 2" in dry_run(FOUR, CUDA_VISIBLE_DEVICES="3,1").out
    assert "--nproc-per-node 1 " in dry_run(FOUR, CUDA_VISIBLE_DEVICES="").out
    assert "--nproc-per-node 1 " in dry_run(FOUR + "\nerror call=nvmlInit code=9").out
    assert "--nproc-per-node 3 " in dry_run(FOUR + "\nerror call=nvmlDeviceGetHandleByIndex code=15 gpu=3").out


def test_gpus_are_dealt_out_over_local_nodes(dry_run):
    shown = dry_run(FOUR, "--nodes", "2", CUDA_VISIBLE_DEVICES="3,2,1,0")
    dealt = [line.split()[1] for line in shown.out.splitlines() if line.startswith("export CUDA_VISIBLE")]
    assert dealt == ["CUDA_VISIBLE_DEVICES=3,2", "CUDA_VISIBLE_DEVICES=1,0"], shown
    shown = dry_run(MIG, "--nodes", "2")
    assert "CUDA_VISIBLE_DEVICES=MIG-a" in shown.out and "CUDA_VISIBLE_DEVICES=MIG-b" in shown.out, shown


def test_more_ranks_than_gpus_are_refused_before_the_start(dry_run):
    refused = dry_run(FOUR, "--nodes", "2", "--nproc-per-node", "4")
    assert refused.code == 2, refused
    assert "2 nodes x 4 ranks need 8 GPUs and 4 are visible" in refused.err
    assert dry_run(FOUR, "--nproc-per-node", "8", "--env", "CUDA_VISIBLE_DEVICES=").code == 0
