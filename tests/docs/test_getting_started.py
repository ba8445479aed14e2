"""Each command of docs/getting-started.md prints the findings, the lines of code and the exit code that are shown."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.docs.blocks import ROOT, Block, blocks, words_of

pytestmark = pytest.mark.slow
PAGE = [b for b in blocks(ROOT / "docs" / "getting-started.md") if "distdbg " in b.text and "train.py" not in b.text]
FOUND, ENDED_BY_SIGNAL = 10, 128


def of(command: str) -> Block:
    return next(b for b in PAGE if b.shell_lines[0].split()[1] == command)


def what_counts(output: str) -> set[str]:
    """Findings with a summary, lines of code, the exit code: all that a reader would compare."""
    ids = re.findall(r"^([a-z]+-[a-z-]+)(?= |$)", output, re.MULTILINE)
    return {*ids, *re.findall(r"\b\w+\.py:\d+", output), *re.findall(r"^exit code .*", output, re.MULTILINE)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As a clone, without what runs leave in it."""
    shutil.copytree(ROOT / "tests" / "programs", tmp_path / "tests" / "programs")
    return tmp_path


@pytest.mark.parametrize("block", [b for b in PAGE if b.output and b != of("hang-dump")], ids=str)
def test_the_output_is_as_shown(block: Block, folder: Path, distdbg: Command) -> None:
    done = distdbg(*words_of(block.shell_lines[0]), cwd=folder)
    assert what_counts(block.output) <= what_counts(done.out + done.err), str(done)


def test_the_hang_is_found_and_cancelled(folder: Path, distdbg: Command) -> None:
    words = words_of(of("launch").shell_lines[0])
    job = subprocess.Popen([sys.executable, "-m", "distdbg", *words], cwd=folder, stdout=subprocess.DEVNULL)
    try:
        while (done := distdbg(*words_of(of("hang-dump").shell_lines[0]), cwd=folder)).code != FOUND:
            assert job.poll() is None, str(done)
        assert what_counts(of("hang-dump").output) <= what_counts(done.out), str(done)
        assert distdbg(*words_of(of("cancel").shell_lines[0]), cwd=folder).code == 0
        assert job.wait(timeout=60) == ENDED_BY_SIGNAL + signal.SIGTERM
    finally:
        job.terminate()
        job.wait()
