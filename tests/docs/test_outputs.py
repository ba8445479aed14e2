"""Each command of getting started and of the symptoms prints the findings, lines and exit code that the page shows."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_box.box import GpuBox
from tests.conftest import Command, Finished
from tests.docs.blocks import ROOT, Block, blocks, words_of
from tests.gpu.fixtures import need_box

pytestmark = pytest.mark.slow
PAGES = ("getting-started.md", "symptoms.md", "plan-a-job.md")
BLOCKS = [
    b for page in PAGES for b in blocks(ROOT / "docs" / page) if "distdbg " in b.text and "train.py" not in b.text
]
SHOWN = [b for b in BLOCKS if b.output]
HANG = [b for b in SHOWN if b.shell_lines[0] == "distdbg hang-dump"]
#: By the command, once: what two pages show, one launch shows for both.
BY_COMMAND = {b.shell_lines[0]: [same for same in SHOWN if same.shell_lines[0] == b.shell_lines[0]] for b in SHOWN}
FOUND, ENDED_BY_SIGNAL = 10, 128
PROGRAM = "barrier_on_rank_0.py"


def of(command: str) -> Block:
    """The first of getting started."""
    return next(b for b in BLOCKS if b.shell_lines[0].split()[1] == command)


def what_counts(output: str) -> set[str]:
    """Findings with a summary, lines of code, the exit code, what was verified and what fits: all that a reader would
    compare."""
    ids = re.findall(r"^([a-z]+-[a-z-]+)(?= |$)", output, re.MULTILINE)
    lines = re.findall(r"^(?:exit code|verified:|not verified:|It fits) ?.*?(?=: the peak|$)", output, re.MULTILINE)
    return {*ids, *lines, *re.findall(r"\b\w+\.py:\d+", output)}


def on_gpu(distdbg: Command, folder: Path, words: list[str], gpu_box: Callable[..., GpuBox]) -> Finished:
    return distdbg(*words, cwd=folder, env=gpu_box(devices=1, memory="1G").environment(), timeout=300)


def rehearsed(distdbg: Command, folder: Path, words: list[str]) -> Finished:
    cache = need_box().parents[3]
    return distdbg(*words, cwd=folder, env={"XDG_CACHE_HOME": str(cache)}, timeout=300)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As a clone, without what runs leave in it, and with the files that the page describes."""
    shutil.copytree(ROOT / "tests" / "programs", tmp_path / "tests" / "programs")
    shutil.copytree(ROOT / "launch", tmp_path / "launch")
    return tmp_path


def check(done: Finished, shown: list[Block]) -> None:
    for block in shown:
        assert what_counts(block.output), f"{block}: nothing to compare"
        assert what_counts(block.output) <= what_counts(done.out + done.err), f"{block}\n{done}"


def needs(command: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.gpu] if "launch/" in command else []


COMMANDS = [c for c in BY_COMMAND if c != "distdbg hang-dump" and "job.log" not in c]


@pytest.mark.parametrize("command", [pytest.param(c, marks=needs(c)) for c in COMMANDS], ids=str)
def test_the_output_is_as_shown(command: str, folder: Path, distdbg: Command, request: pytest.FixtureRequest) -> None:
    words = words_of(command)
    match words[0]:
        case "rehearse":
            done = rehearsed(distdbg, folder, words)
        case "shrink-model":
            config = next(b for b in blocks(ROOT / "docs" / "symptoms.md") if "model_type" in b.text)
            (folder / "qwen3").mkdir()
            (folder / "qwen3" / "config.json").write_text(config.text)
            done = distdbg(*words, cwd=folder, timeout=300)
        case _ if "launch/ddp.py" in words:
            done = on_gpu(distdbg, folder, words, request.getfixturevalue("gpu_box"))
        case _:
            done = distdbg(*words, cwd=folder)
    check(done, BY_COMMAND[command])


def test_a_log_of_another_job(folder: Path, distdbg: Command, torchrun: Command) -> None:
    program = "tests/programs/dies/raises_and_cleans_up.py"
    job = torchrun("--nproc-per-node", "2", program, cwd=folder)
    (folder / "job.log").write_text(job.out + job.err)
    check(distdbg("explain", "job.log", cwd=folder), BY_COMMAND["distdbg explain job.log"])


def test_the_hang_is_found_and_cancelled(folder: Path, distdbg: Command) -> None:
    words = words_of(of("launch").shell_lines[0])
    job = subprocess.Popen([sys.executable, "-m", "distdbg", *words], cwd=folder, stdout=subprocess.DEVNULL)
    latest = folder / "distdbg-runs" / "latest"
    try:
        while not latest.exists():  # before it, hang-dump takes any other job of this machine: another test's
            assert job.poll() is None
            time.sleep(0.1)
        while (done := distdbg("hang-dump", cwd=folder)).code != FOUND or PROGRAM not in done.out:
            assert job.poll() is None, str(done)
        check(done, HANG)
        assert distdbg(*words_of(of("cancel").shell_lines[0]), cwd=folder).code == 0
        assert job.wait(timeout=60) == ENDED_BY_SIGNAL + signal.SIGTERM
    finally:
        job.terminate()
        job.wait()


def test_every_symptom_has_a_command_that_is_run() -> None:
    text = (ROOT / "docs" / "symptoms.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [A-Z].*?\| `distdbg ([a-z-]+)", text, re.MULTILINE)
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert len(rows) == len(sections) == 11
    assert [s.partition("\n")[0] for s in sections if not re.search(r"^    \$ distdbg ", s, re.MULTILINE)] == []
