"""A step in a container: what is mounted into it, and a job whose image has torch and nothing of distdbg's."""

import os
import sys
import sysconfig
from pathlib import Path

import pytest

from distdbg.errors import UsageError
from distdbg.launch.backends.slurm.step import PACKAGE, container_options
from distdbg.launch.plan.place import Container
from tests.cluster.bed import Bed
from tests.cluster.fixtures import need_bed, own_folder
from tests.cluster.jobs import jobs, nothing_is_left
from tests.cluster.slurm import Slurm

FOLDER, RUN = Path("/home/me/job"), Path("/runs/1")


def step(*folders, folder=FOLDER, **options):
    """Option -> value, the mounts as a list."""
    options = {name.replace("_", "-"): value for name, value in options.items()}
    words = container_options(Container(options, "python3", folder), *folders)
    found = dict(word.removeprefix("--").partition("=")[::2] for word in words)
    return found | {"container-mounts": found["container-mounts"].split(",")}


def test_what_the_job_needs_is_mounted_at_its_own_path():
    made = step(RUN, container_image="a#b")
    assert made["container-image"] == "a#b" and made["container-workdir"] == str(FOLDER)
    assert made["container-mounts"][:3] == [f"{path}:{path}" for path in (FOLDER, RUN, PACKAGE)]
    assert any(mount.endswith("/py-spy") for mount in made["container-mounts"])


def test_what_the_user_mounts_stays_and_covers_what_lies_in_it():
    made = step(FOLDER / "distdbg-runs/1", RUN, container_image="i", container_mounts="/data:/runs:ro,/scratch")
    assert made["container-mounts"][:3] == ["/data:/runs:ro", "/scratch", f"{FOLDER}:{FOLDER}"]
    assert not any("/runs/1" in mount or "distdbg-runs" in mount for mount in made["container-mounts"])


def test_a_folder_of_the_image_is_not_covered():
    made = step(RUN, folder=Path("/workspace"), container_image="i", container_workdir="/workspace")
    assert made["container-workdir"] == "/workspace"
    assert made["container-mounts"][0] == f"{RUN}:{RUN}"


def test_switches_are_handed_on():
    assert step(container_image="i", no_container_mount_home="")["no-container-mount-home"] == ""


@pytest.mark.parametrize(("folder", "says"), [("/a,b", "','"), ("/a:b", "':'"), ("/", "hide the image")])
def test_a_path_that_cannot_be_mounted(folder, says):
    with pytest.raises(UsageError, match=says):
        step(folder=Path(folder), container_image="i")


@pytest.fixture(scope="module")
def bed():
    need_bed(slurm=True)
    with Bed(own_folder(), nodes=2, slurm=Slurm(containers=True)) as made:
        yield made


@pytest.fixture
def launch(bed):
    with jobs(bed) as start:
        yield start


@pytest.fixture
def image(bed):
    """Its python3 has the suite's torch, and no distdbg: of an installed one only the metadata is there."""
    root = bed.shared / "image"
    site = root / f"venv/lib/python{sysconfig.get_python_version()}/site-packages"
    for folder in (site, root / "venv/bin", root / "etc"):
        folder.mkdir(parents=True)
    base = Path(sys.base_prefix) / "bin" / f"python{sysconfig.get_python_version()}"
    (root / "venv/bin/python3").symlink_to(base)
    (root / "venv/pyvenv.cfg").write_text(f"home = {base.parent}\n")
    (site / "torch.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    mounts = {"/usr", sys.base_prefix, sysconfig.get_path("purelib")}
    return ["--container-image", str(root), "--slurm", f"container-mounts={','.join(f'{m}:{m}' for m in mounts)}"]


TRAIN = """
import os, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(4))
print(dist.get_rank(), sys.prefix, os.getcwd() == sys.path[0], os.path.exists("/etc/slurm"))
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_an_image_without_distdbg(bed, launch, image):
    job = launch(*image, "--container-python", "/venv/bin/python3", train=TRAIN, env={"PYTHONPATH": ""})
    assert job.ends(120) == 0, job.said()
    assert all(f"{rank} /venv True False" in job.said() for rank in range(4)), job.said()
    report = job.report()
    assert (report["outcome"], report["unknown"]) == ("succeeded", []), report
    nothing_is_left(bed)
    here = ("--container-python", "/venv/bin/python3", "--slurm", "container-workdir=/inside")
    (bed.shared / "image/inside").mkdir()
    (bed.shared / "image/inside/own.py").write_text("import os, sys; print(os.getcwd(), sys.argv[1])")
    job = launch(*image, *here, "own.py", env={"PYTHONPATH": ""})
    assert (job.ends(120), job.said().count("/inside train.py")) == (0, 4), job.said()
    job = launch(*image, *here, "other.py", env={"PYTHONPATH": ""})
    assert job.ends(120) == 2, job.said()
    assert "launch-failed" in job.said() and "can't open file '/inside/other.py'" in job.said()
    job = launch(*image, "--container-python", "/usr/bin/python9", env={"PYTHONPATH": os.getcwd()})
    assert job.ends(60) == 2, job.said()
    assert "/usr/bin/python9" in job.said() and "--container-python names another interpreter" in job.said()
