"""Compiles the fake libnvidia-ml.so.1 and gives the environment in which a process finds it."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("nvml.c")


def fake_gpus(folder: Path, text: str, without: list[str] | None = None) -> dict[str, str]:
    """Variables for a subprocess that sees the GPUs of `text`; the text file is folder/gpus.txt."""
    described = folder / "gpus.txt"
    described.write_text(text + "\n")
    paths = [str(library(without or []).parent), os.environ.get("LD_LIBRARY_PATH", "")]
    return {"LD_LIBRARY_PATH": ":".join(filter(None, paths)), "FAKE_NVML": str(described)}


def library(without: list[str]) -> Path:
    """The compiled library, kept in the temporary folder as long as its source stays the same."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("gcc is missing: install Debian's gcc, or run `make system-packages`")
    flags = [f"-DWITHOUT_{name}" for name in without]
    key = hashlib.sha256(SOURCE.read_bytes() + repr(flags).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"fake-nvml-{os.getuid()}-{key}"
    path = folder / "libnvidia-ml.so.1"
    if not path.exists():
        folder.mkdir(mode=0o700, exist_ok=True)
        made = path.with_name(f"{os.getpid()}.so")
        command = [compiler, "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", *flags]
        subprocess.run([*command, "-Wl,-soname,libnvidia-ml.so.1", "-o", made, SOURCE], check=True)
        made.replace(path)
    return path
