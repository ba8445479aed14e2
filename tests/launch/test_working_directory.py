"""Modules of the working directory: plain torchrun imports none of them, and so does no process of a launch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from distdbg.assets import MAIN
from tests.cluster.bed import Bed
from tests.cluster.fixtures import need_bed, own_folder
from tests.cluster.slurm import Slurm, missing
from tests.cluster.sshd import Sshd, at_home, need_sshd
from tests.conftest import environment_in, run_command

pytestmark = [pytest.mark.slow, pytest.mark.started, pytest.mark.timeout(300), pytest.mark.xdist_group("bed")]
PACKAGE = MAIN.parent
SCRIPTS = Path(sys.executable).parent
DISTDBG, TORCHRUN = str(SCRIPTS / "distdbg"), str(SCRIPTS / "torchrun")
#: What torchrun or distdbg need, or what these need in turn.
_OTHERS = ("torch", "numpy", "click", "psutil", "yaml", "pydantic", "rich", "jinja2", "distdbg")
MODULES = {*sys.stdlib_module_names, *_OTHERS}
#: Its first line shows who has been imported, whatever becomes of the exception.
SHADOW = "open(__file__ + '.imported', 'w').close()\nraise ImportError(f'{__file__} was imported')\n"
SCRIPT = "import os, sys\nprint('PATH', os.environ['RANK'], sys.path)\n"


@pytest.fixture
def folder(tmp_path):
    return shadowing(tmp_path / "work")


def shadowing(folder: Path) -> Path:
    """A working directory with a module of each name, and the script in a folder below it."""
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "train.py").write_text(SCRIPT)
    for name in MODULES:
        (folder / f"{name}.py").write_text(SHADOW)
    return folder


def imported(folder: Path) -> list[str]:
    return sorted(path.name.removesuffix(".py.imported") for path in folder.glob("*.imported"))


def paths(output: str) -> dict[str, str]:
    """Rank -> its sys.path, as printed; a launch of several ranks puts `[rank N]` before a line."""
    lines = (line.partition("PATH ")[2] for line in output.splitlines() if "PATH " in line)
    return {rank: path for rank, _, path in (line.partition(" ") for line in lines)}


@pytest.fixture
def plain(folder) -> str:
    """The path of a rank under plain torchrun."""
    done = run_command([TORCHRUN, "src/train.py"], folder)
    assert done.code == 0 and imported(folder) == [], str(done)
    return paths(done.out)["0"]


def test_local_launch_imports_nothing_of_the_folder(folder, plain):
    done = run_command([DISTDBG, "launch", "--nproc-per-node", "2", "--show-ranks", "all", "src/train.py"], folder)
    assert (done.code, imported(folder)) == (0, []), str(done)
    assert paths(done.out) == {"0": plain, "1": plain}


def test_module_is_searched_in_the_folder_as_under_torchrun(folder):
    """Of a rank that is started with -m the working directory is the first entry."""
    (folder / "src" / "__init__.py").touch()
    for name in MODULES:
        (folder / f"{name}.py").unlink()
    words = ["--nproc-per-node", "1", "-m", "src.train"]
    expected, observed = run_command([TORCHRUN, *words], folder), run_command([DISTDBG, "launch", *words], folder)
    assert paths(observed.out) == paths(expected.out)
    assert str(folder) in paths(observed.out)["0"]


@pytest.mark.parametrize("words", [("preflight", "--json"), ("bisect", "--", "distdbg", "launch", "src/train.py")])
def test_command_imports_nothing_of_the_folder(folder, words):
    done = run_command([DISTDBG, *words], folder)
    assert imported(folder) == [], str(done)


def test_dry_run_imports_nothing_of_the_folder(folder, plain):
    shown = run_command([DISTDBG, "launch", "--dry-run", "src/train.py"], folder)
    done = run_command(["bash", "-c", shown.out], folder)
    assert (done.code, imported(folder)) == (0, []), str(done)
    assert paths(done.out) == {"0": plain}


@pytest.mark.parametrize("name", ["__main__.py --version", "shrink/child.py 1", "launch/backends/slurm/requeue.py -h"])
def test_file_that_we_start_imports_nothing_of_the_folder(folder, name):
    file, argument = name.split()
    done = run_command([sys.executable, str(PACKAGE / file), argument], folder)
    assert (imported(folder), done.err) == ([], "")


def test_module_of_the_command_imports_nothing_of_the_folder(folder):
    """Python itself searches the working directory for runpy and for the package, and for nothing that follows."""
    for name in ("runpy", "pkgutil", "distdbg"):
        (folder / f"{name}.py").unlink()
    done = run_command([sys.executable, "-m", "distdbg", "--version"], folder)
    assert (done.code, imported(folder)) == (0, []), str(done)


@pytest.fixture(scope="module")
def ssh_bed():
    need_bed()
    need_sshd()
    with Bed(own_folder(), nodes=2) as made:
        at_home(made, Sshd(made))
        yield made


@pytest.fixture(scope="module")
def cluster():
    need_bed(slurm=True)
    assert not missing()
    with Bed(own_folder(), nodes=2, slurm=Slurm()) as made:
        yield made


def on_host(bed: Bed, host: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    line = ["sh", "-c", 'cd "$0" && exec "$@"', str(folder), *words]
    environment = environment_in(bed.shared) | {"TERM": "dumb", "PATH": os.environ["PATH"]}
    return bed.run(host, *line, env=environment, timeout=200)


def expect_same_path(bed: Bed, folder: Path, done: subprocess.CompletedProcess[str], torchrun_on: str) -> None:
    plain = on_host(bed, torchrun_on, folder, TORCHRUN, "src/train.py")
    assert (done.returncode, imported(folder)) == (0, []), f"{done.stdout}\n{done.stderr}"
    assert paths(done.stdout) == dict.fromkeys("01", paths(plain.stdout)["0"])


def test_ssh_launch_imports_nothing_of_the_folder(ssh_bed):
    folder = shadowing(ssh_bed.shared / "ssh")
    words = ("--hosts", "node1,node2", "--nproc-per-node", "1", "--show-ranks", "all", "src/train.py")
    done = on_host(ssh_bed, "node1", folder, DISTDBG, "launch", *words)
    expect_same_path(ssh_bed, folder, done, "node1")


def test_slurm_job_imports_nothing_of_the_folder(cluster):
    """The batch script ends with the program that may requeue the job."""
    folder = shadowing(cluster.shared / "slurm")
    words = ("--nodes", "2", "--max-requeues", "1", "--nproc-per-node", "1", "--show-ranks", "all", "src/train.py")
    done = on_host(cluster, "head", folder, DISTDBG, "launch", "--on", "slurm", *words)
    expect_same_path(cluster, folder, done, "node1")
    (log,) = (folder / "distdbg-runs").glob("2*/batch.log")
    assert "Error" not in log.read_text()
