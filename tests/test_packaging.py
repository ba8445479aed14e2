"""What lands in site-packages: distdbg, whole, with its data, and nothing else; of the simulated GPUs gpu_box alone."""

from __future__ import annotations

import email
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ASSETS = ("launch", "configs", "slurm")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("packaging")]  # one build serves all


@dataclass(frozen=True)
class Built:
    wheel: Path
    sdist: Path

    @property
    def in_wheel(self) -> set[str]:
        with zipfile.ZipFile(self.wheel) as archive:
            return set(archive.namelist())

    @property
    def in_sdist(self) -> set[str]:
        with tarfile.open(self.sdist) as archive:
            return {name.partition("/")[2] for name in archive.getnames()}

    @property
    def metadata(self) -> Message:
        info = next(n for n in self.in_wheel if n.endswith(".dist-info/METADATA"))
        with zipfile.ZipFile(self.wheel) as archive:
            return email.message_from_bytes(archive.read(info))


def ours() -> list[str]:
    """Files that git knows or would take: what a clean clone of this tree, committed as it is, would hold."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.fail(f"the packaging tests need a git checkout: {listed.stderr.decode()}")
    return [name for name in os.fsdecode(listed.stdout).split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def clean_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("copy")
    for name in ours():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
    return copy


def build(project: Path, dist: Path) -> Built:
    """The sdist, and the wheel made from that sdist, as an index would serve them."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(dist), str(project)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return Built(next(dist.glob("*.whl")), next(dist.glob("*.tar.gz")))


@pytest.fixture(scope="module")
def built(clean_copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(clean_copy, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def gpu_box_built(clean_copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(clean_copy / "gpu_box", tmp_path_factory.mktemp("dist-gpu-box"))


def test_the_wheel_holds_the_package_and_nothing_beside_it(built: Built) -> None:
    assert built.wheel.name.endswith("-py3-none-any.whl")
    strangers = {n for n in built.in_wheel if not re.match(r"distdbg/|distdbg-[\d.]+\.dist-info/", n)}
    assert not strangers
    assert not {n for n in built.in_wheel if n.endswith((".pyc", ".egg-info")) or "/tests/" in n}


def test_every_file_of_the_package_is_in_the_wheel(built: Built) -> None:
    """A package that pyproject.toml does not list, or data that no pattern takes, shows here."""
    source = {name for name in ours() if name.startswith("distdbg/")}
    assert source - built.in_wheel == set()


def test_the_assets_are_in_the_wheel(built: Built) -> None:
    data = {n for n in ours() if n.startswith(tuple(f"{a}/" for a in ASSETS)) and not n.endswith(".gitkeep")}
    assert {"launch/ddp.py", "launch/fsdp.py"} <= data
    assert {f"distdbg/_assets/{n}" for n in data} - built.in_wheel == set()
    programs = {n.removeprefix("tests/programs/") for n in ours() if n.startswith("tests/programs/guards/")}
    assert programs and {f"distdbg/_assets/{n}" for n in programs} - built.in_wheel == set()


def test_the_wheel_of_the_simulated_gpus_holds_them_and_nothing_else(gpu_box_built: Built) -> None:
    source = {n for n in ours() if re.fullmatch(r"gpu_box/([^/]+\.py|py\.typed|native/[^/]+)", n)}
    assert {"gpu_box/build.py", "gpu_box/native/nccl.cpp", "gpu_box/native/box.h"} <= source
    info = "distdbg_gpu_box-"
    assert {n for n in gpu_box_built.in_wheel if not n.startswith(info)} == source
    assert any(n.endswith("/licenses/LICENSE") for n in gpu_box_built.in_wheel)
    assert {"pyproject.toml", "README.md", "LICENSE"} <= gpu_box_built.in_sdist


def test_the_two_distributions_have_one_version(built: Built, gpu_box_built: Built) -> None:
    version = gpu_box_built.metadata["Version"]
    assert built.metadata["Version"] == version
    assert f"distdbg-gpu-box=={version}; extra == 'rehearse'" in [
        requirement.replace('"', "'") for requirement in built.metadata.get_all("Requires-Dist")
    ]


def test_the_extra_rehearse_is_satisfied_by_the_checkout(built: Built, gpu_box_built: Built, tmp_path: Path) -> None:
    """As `pip install ./gpu_box '.[rehearse]'`, without an index."""
    wheels = [f"distdbg[rehearse] @ {built.wheel.as_uri()}", str(gpu_box_built.wheel)]
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--dry-run", "--report", "-", "--quiet"]
    done = subprocess.run([*command, *wheels], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {item["metadata"]["name"] for item in json.loads(done.stdout)["install"]} >= {"distdbg", "distdbg-gpu-box"}


def test_the_sdist_holds_what_its_wheel_needs(built: Built) -> None:
    assert {"pyproject.toml", "README.md", "LICENSE"} <= built.in_sdist
    assert {n for n in ours() if n.startswith("distdbg/")} <= built.in_sdist


def test_the_metadata_names_licence_and_entry_points(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        info = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA")).rpartition("/")[0]
        metadata = archive.read(f"{info}/METADATA").decode()
        entry_points = archive.read(f"{info}/entry_points.txt").decode()
    assert "License-Expression: Apache-2.0" in metadata and "Requires-Python: >=3.10" in metadata
    assert not re.search(r"^Requires-Dist: torch(?!.*extra ==)", metadata, re.MULTILINE), "torch is no hard requirement"
    assert "distdbg = distdbg.start:main" in entry_points and "[torchrun.logs_specs]" in entry_points


def test_an_installed_copy_runs_and_finds_its_assets(built: Built, tmp_path: Path) -> None:
    """From another folder and without the checkout in sight."""
    site = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([*command, str(built.wheel)], check=True)
    top = {p.name for p in site.iterdir() if not p.name.endswith(".dist-info")}
    assert top == {"distdbg", "bin"}
    code = (
        "import distdbg.assets as a; print(a.__file__); print(*(p / n for p, n in "
        "((a.asset_dir('launch'), 'ddp.py'), (a.asset_dir('configs'), ''))), sep='\\n')"
    )
    env = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    for line in done.stdout.splitlines():
        assert Path(line).exists() and Path(line).is_relative_to(site)
    version = subprocess.run([str(site / "bin" / "distdbg"), "--help"], cwd=tmp_path, env=env, check=False)
    assert version.returncode == 0
