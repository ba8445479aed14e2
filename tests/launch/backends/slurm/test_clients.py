"""Frameworks that look for Slurm by themselves run on its nodes as they do elsewhere."""

from pathlib import Path

import pytest

from tests.cluster.bed import Bed
from tests.cluster.fixtures import need_bed, own_folder
from tests.cluster.jobs import jobs, nothing_is_left
from tests.cluster.slurm import Slurm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.xdist_group("slurm-clients")]
PROGRAMS = Path(__file__).parents[3] / "programs" / "clients"


@pytest.fixture(scope="module")
def bed():
    need_bed(slurm=True)
    with Bed(own_folder(), nodes=2, slurm=Slurm()) as made:
        yield made


@pytest.mark.parametrize("client", ["hf_trainer", "accelerate_script", "lightning_script", "titan_like"])
def test_client_unmodified(bed, client):
    text = (PROGRAMS / f"{client}.py").read_text()
    with jobs(bed) as launch:
        job = launch(train=text, steps=f"{bed.shared}/out-{client}", env={"HF_HUB_OFFLINE": "1"})
        assert job.ends(200) == 0, job.said()
        assert "CLIENT OK 4" in job.said(), job.said()
        nothing_is_left(bed)
