"""Asking for help costs nothing: no torch, little CPU. People and shells' completion do it all day."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from distdbg.cli import cli

pytestmark = [pytest.mark.slow, pytest.mark.started]  # the command line again and again

CPU_SECONDS = 0.15
#: Modules of Python's own, and what loading them takes where the budget was set: a slower hour is measured by it.
YARDSTICK = [sys.executable, "-c", "import asyncio, http.client, unittest, sqlite3, xml.dom.minidom"]
YARDSTICK_SECONDS = 0.117
HEAVY = ("torch", "numpy", "pydantic", "jinja2")


def cpu_of(command: list[str]) -> float:
    """User and system seconds of a command and of what it started and waited for."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return usage.ru_utime + usage.ru_stime


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_are_cheap(option: str) -> None:
    command = [sys.executable, "-m", "distdbg", option]
    cpu_of(command)  # the first one may compile
    # The smallest of many, in turns: neighbours on a busy machine can only add.
    ours, yardstick = zip(*((cpu_of(command), cpu_of(YARDSTICK)) for _ in range(10)), strict=True)
    slower = max(1.0, min(yardstick) / YARDSTICK_SECONDS)
    assert min(ours) < CPU_SECONDS * slower, f"{option} takes {min(ours):.3f} s of CPU, a machine {slower:.2f} as slow"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], *([c, "--help"] for c in cli.list_commands(None))])
def test_help_never_imports_what_is_heavy(arguments: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "distdbg", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "click" in loaded  # the list is one
    heavy = HEAVY[:1] if arguments[0] not in ("--help", "--version") else HEAVY
    assert not loaded & set(heavy)
