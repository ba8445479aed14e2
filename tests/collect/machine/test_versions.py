import subprocess
import sys

import pytest

from distdbg.collect.machine import versions as module
from distdbg.collect.machine.versions import driver_version, version_lines, versions


def torch_of(folder, monkeypatch, text):
    (folder / "torch").mkdir(exist_ok=True)
    (folder / "torch" / "__init__.py").write_text("raise AssertionError('torch was imported')")
    (folder / "torch" / "version.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "torch", raising=False)


def test_torch_is_read_and_not_imported(tmp_path, monkeypatch):
    text = "__version__ = '9.9.0+cu130'\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n"
    torch_of(tmp_path, monkeypatch, text)
    assert (versions()["torch"], versions()["cuda"]) == ("9.9.0+cu130", "13.0")
    monkeypatch.setattr(module, "_installed", lambda name: "2.29.7" if name == "nvidia-nccl-cu13" else "")
    assert "torch 9.9.0+cu130, CUDA 13.0" in version_lines()
    assert "nccl 2.29.7" in version_lines()
    monkeypatch.setattr(module, "_installed", lambda name: "")
    assert "nccl part of torch, version not known without importing it" in version_lines()
    torch_of(tmp_path, monkeypatch, "garbage")
    assert "torch of unknown version" in version_lines()


def test_without_torch(monkeypatch):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    assert "torch" not in versions()
    assert {"torch not installed", "nccl none: torch is not installed"} <= set(version_lines())


def test_a_tool_outside_of_python(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_installed", lambda name: "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "py-spy not installed" in version_lines()
    (tmp_path / "py-spy").write_text("")
    (tmp_path / "py-spy").chmod(0o755)
    assert f"py-spy at {tmp_path}/py-spy" in version_lines()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 23 2025\nGCC version: gcc 12\n",
            "570.86.15",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs)\n", "580.65.06"),
        ("nothing", None),
    ],
)
def test_the_drivers_version(tmp_path, text, version):
    (tmp_path / "version").write_text(text)
    assert driver_version(tmp_path / "version") == version
    assert driver_version(tmp_path / "missing") is None


def test_the_command_names_them_all():
    done = subprocess.run([sys.executable, "-m", "distdbg", "--version"], capture_output=True, text=True)
    assert [line.split()[0] for line in done.stdout.splitlines()] == "distdbg python torch nccl py-spy driver".split()
