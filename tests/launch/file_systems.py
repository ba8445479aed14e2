"""File systems for tests: one of a megabyte, one that can be frozen, and a folder with a quota."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

QUOTA = Path(__file__).with_name("quota.c")


def _run(*command: str | Path) -> None:
    try:
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip(f"{command[0]} is missing: install Debian's e2fsprogs and util-linux")
    if done.returncode:
        pytest.skip(f"not possible here: {command[0]} {done.stderr.strip()}")


@contextlib.contextmanager
def tiny_file_system(folder: Path, size: str = "1m") -> Iterator[Path]:
    """A tmpfs of `size`; skips where mounting is not permitted."""
    if os.geteuid() != 0:
        pytest.skip("not possible here: mounting needs root")
    folder.mkdir()
    _run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def quota(folder: Path, size: int) -> dict[str, str]:
    """Makes a folder, and gives the environment for a subprocess in which it may hold `size` bytes.

    Not a real quota: kernels of small virtual machines have none (CONFIG_QFMT_V2, CONFIG_TMPFS_QUOTA).
    """
    folder.mkdir()
    library = folder.with_suffix(".so")
    command = ["gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", library, QUOTA, "-ldl"]
    try:
        subprocess.run(command, check=True)
    except FileNotFoundError:
        pytest.skip("gcc is missing: install Debian's gcc, or run `make system-packages`")
    return {"LD_PRELOAD": str(library), "QUOTA_FOLDER": f"{folder}/", "QUOTA_BYTES": str(size)}


class FreezableDisk:
    """An ext4 image, mounted; `freeze` makes every write to it hang, as a dead file server does."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def freeze(self) -> None:
        _run("fsfreeze", "-f", self.path)

    def make_read_only(self) -> None:
        """As the kernel does after an error of the disk: files that are open for writing are no exception."""
        _run("mount", "-o", "remount,abort", self.path)

    def thaw(self) -> None:
        subprocess.run(["fsfreeze", "-u", self.path], capture_output=True)


@contextlib.contextmanager
def freezable_file_system(folder: Path) -> Iterator[FreezableDisk]:
    if os.geteuid() != 0:
        pytest.skip("not possible here: mounting needs root")
    image = folder.with_suffix(".img")
    image.touch()
    os.truncate(image, 64 << 20)
    folder.mkdir()
    _run("mkfs.ext4", "-q", "-F", image)
    _run("mount", "-o", "loop", image, folder)
    disk = FreezableDisk(folder)
    try:
        yield disk
    finally:
        disk.thaw()  # whatever happened: what hangs in a write to it cannot even be killed
        subprocess.run(["umount", "-l", folder], check=True)
