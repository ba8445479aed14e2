"""However an allocation's GPUs were asked for: `auto` is their number on a node, by real Slurm's own word."""

import re
import sys
from pathlib import Path

import pytest

from tests.cluster.bed import Bed
from tests.cluster.fixtures import need_bed, own_folder
from tests.cluster.slurm import Slurm

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("bed")]
ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def bed():
    need_bed(slurm=True)
    with Bed(own_folder(), nodes=2, slurm=Slurm(gpus=2)) as made:
        (made.shared / "train.py").write_text("print(1)\n")
        yield made


@pytest.mark.parametrize(
    ("asked", "ranks"),
    [
        ("--gres=gpu:2", 2),
        ("--gpus-per-task=1", 1),
        ("--gpus=4", 2),
        ("--gpus-per-node=h100:2", 2),
        ("--exclusive", 2),
        ("-n2", 1),
    ],
)
def test_auto_is_what_slurm_has_allocated_on_a_node(bed, asked, ranks):
    words = ["salloc", "-Q", "-N2", asked, sys.executable, "-m", "distdbg", "launch", "--dry-run", "train.py"]
    inside = ["sh", "-c", 'cd "$0" && exec "$@"', str(bed.shared), *words]
    done = bed.run("head", *inside, env={"PYTHONPATH": str(ROOT)}, timeout=60)
    assert re.findall(r"--nproc-per-node (\S+)", done.stdout) == [str(ranks)], done.stdout + done.stderr
