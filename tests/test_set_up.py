"""How `make` comes by torch: never a CUDA build for a machine without an NVIDIA device."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.slow  # a process for each of them

SOURCE = Path(__file__).resolve().parent.parent / ".ci" / "environment.py"


def add_wheel(index: Path, name: str, version: str, *requires: str) -> None:
    """An empty wheel in a folder that pip takes for an index."""
    folder = index / name
    folder.mkdir(parents=True, exist_ok=True)
    file = name.replace("-", "_")
    info = f"{file}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{file}-{version}-py3-none-any.whl", "w") as wheel:
        lines = [f"Requires-Dist: {r}" for r in requires]
        wheel.writestr(
            f"{info}/METADATA", "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines])
        )
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    links = "".join(f'<a href="{p.name.replace("+", "%2B")}">{p.name}</a>\n' for p in folder.glob("*.whl"))
    (folder / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only index that pip knows: its newest torch wants CUDA packages, as PyPI's does."""
    simple = tmp_path / "simple"
    add_wheel(simple, "torch", "9.9.9", "nvidia-cublas-cu99", "triton")
    add_wheel(simple, "nvidia-cublas-cu99", "1.0")
    add_wheel(simple, "triton", "1.0")
    for name in [n for n in os.environ if n.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", simple.as_uri())
    return simple


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """.ci/environment.py on a machine without a device and with an empty CPU index; `installed` records pip's calls."""
    spec = importlib.util.spec_from_file_location("environment", SOURCE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    installed: list[tuple[str, ...]] = []
    monkeypatch.setattr(module, "NVIDIA_DEVICES", ())
    monkeypatch.setattr(module, "CPU_INDEX", (tmp_path / "cpu").as_uri())
    monkeypatch.setattr(module, "pip", lambda _python, *arguments: installed.append(arguments))
    module.installed = installed
    return module


def test_a_cuda_build_is_refused_by_name(environment: ModuleType, index: Path, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        environment.install_torch(sys.executable, "torch==9.9.9")
    said = capsys.readouterr().err
    assert "nvidia-cublas-cu99" in said and "TORCH=" in said
    assert environment.installed == []


def test_the_cpu_index_is_asked_next(environment: ModuleType, index: Path, tmp_path: Path) -> None:
    add_wheel(tmp_path / "cpu", "torch", "9.9.9+cpu")
    environment.install_torch(sys.executable, "torch==9.9.9")
    [arguments] = environment.installed
    assert "torch==9.9.9" in arguments and environment.CPU_INDEX in arguments


def test_a_cpu_build_of_the_configured_index_is_taken(environment: ModuleType, index: Path) -> None:
    add_wheel(index, "torch", "9.9.9+cpu")
    environment.install_torch(sys.executable, "torch==9.9.9")
    assert environment.installed == [("install", "--quiet", "torch==9.9.9")]


def test_the_newest_version_with_a_cpu_build_is_taken_and_named(
    environment: ModuleType, index: Path, capsys: pytest.CaptureFixture
) -> None:
    for version, needed in (("9.8.0", ("triton",)), ("9.7.0+cpu", ()), ("9.6.0", ())):
        add_wheel(index, "torch", version, *needed)
    environment.install_torch(sys.executable, "torch>=9.6")
    assert environment.installed == [("install", "--quiet", "torch==9.7.0+cpu")]
    assert "9.9.9" in (said := capsys.readouterr().out) and "9.7.0+cpu" in said
    environment.installed.clear()
    with pytest.raises(SystemExit):
        environment.install_torch(sys.executable, "torch>=9.8")
    assert environment.installed == []


@pytest.mark.parametrize(("extra", "project"), [((), "."), (("--extra", "test"), ".[test]")])
def test_distdbg_and_the_simulated_gpus_are_installed(
    environment: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: tuple[str, ...], project: str
) -> None:
    monkeypatch.setattr(environment, "make_folder", lambda _folder: sys.executable)
    monkeypatch.setattr(environment, "HAS_TORCH", "pass")
    monkeypatch.setattr(environment, "VERSION", "print('9.9.9')")
    monkeypatch.setattr(sys, "argv", ["environment.py", str(tmp_path), *extra])
    environment.main()
    [arguments] = environment.installed
    editable = [word for option, word in pairwise(arguments) if option == "--editable"]
    assert editable == [project, "./gpu_box"] and (tmp_path / "torch-constraint.txt").read_text() == "torch==9.9.9\n"


def test_with_a_device_pip_decides(environment: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "NVIDIA_DEVICES", (os.devnull,))
    environment.install_torch(sys.executable, "torch==9.9.9")
    assert environment.installed == [("install", "--quiet", "torch==9.9.9")]


@pytest.mark.slow
def test_the_callers_packages_are_seen_from_a_virtual_environment(
    environment: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """click stands for torch: installed where the tests run, in whatever kind of environment that is."""
    monkeypatch.setattr(environment, "HAS_TORCH", "import click")
    folder = tmp_path / "a b" / "venv"
    python = environment.make_folder(folder)
    where = subprocess.run([python, "-c", "import click; print(click.__file__)"], capture_output=True, text=True)
    assert where.returncode == 0 and not where.stdout.startswith(str(folder)), where.stderr
    made = (folder / "pyvenv.cfg").stat().st_mtime_ns
    assert environment.make_folder(folder) == python and (folder / "pyvenv.cfg").stat().st_mtime_ns == made


def test_a_folder_that_is_something_else_is_left_alone(environment: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(SystemExit):
        environment.make_folder(tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_what_ci_runs_says_that_it_is_ci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever runs it: else skips would pass."""
    monkeypatch.delenv("CI", raising=False)
    (tmp_path / ".ci").mkdir()
    shutil.copy2(SOURCE.with_name("run"), tmp_path / ".ci" / "run")
    (tmp_path / "make").write_text('#!/bin/sh\necho "$1 $CI"\n')
    (tmp_path / "make").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    done = subprocess.run([tmp_path / ".ci" / "run"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "test-all true"


#: Stands for Python in `make`: notes what it was called with, and makes what .ci/environment.py would.
PRETENDER = """\
#!/bin/sh
echo "$0 $*" >> "$CALLS"
case "$1" in
*environment.py) mkdir -p "$2/bin"; cp "$0" "$2/bin/python"; cp "$0" "$2/bin/distdbg";;
esac
"""


def test_make_sets_up_once_and_again_when_the_project_asks_for_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("Makefile", "pyproject.toml", "gpu_box/pyproject.toml", ".ci/environment.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy2(SOURCE.parent.parent / name, tmp_path / name)
    (tmp_path / "pretender").write_text(PRETENDER)
    (tmp_path / "pretender").chmod(0o755)
    calls = tmp_path / "calls"
    monkeypatch.setenv("CALLS", str(calls))
    for name in ("MAKEFLAGS", "MAKELEVEL", "VENV", "TORCH", "ARGS"):
        monkeypatch.delenv(name, raising=False)

    def make(target: str) -> list[str]:
        """What it called: the set-up by its options, everything else by the program's name."""
        calls.write_text("")
        subprocess.run(["make", target, "PYTHON=./pretender"], cwd=tmp_path, check=True, capture_output=True)
        lines = calls.read_text().splitlines()
        return [line.partition(" ")[2].partition(" .venv ")[2] or line.partition(" ")[2].split()[0] for line in lines]

    torch = "--torch torch>=2.8"
    demo = ["launch", "report"]
    assert make("demo") == [torch, *demo]
    assert make("demo") == demo
    tests = ["-m"] * 4  # ruff twice, mypy, pytest
    assert make("test") == [f"{torch} --extra test", *tests]
    assert make("test") == tests and make("demo") == demo
    later = (tmp_path / ".venv" / ".ready-test").stat().st_mtime + 10
    os.utime(tmp_path / "pyproject.toml", (later, later))
    assert make("test-fast") == [f"{torch} --extra test", "-m"]
