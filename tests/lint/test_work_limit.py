"""The work on a file grows with its length, and ends with a reason if it takes too long all the same."""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner

from distdbg.cli import cli
from distdbg.collect.files import linted_files
from distdbg.lint import all_rules
from distdbg.lint.linting import lint_text
from distdbg.lint.script.parsing import UnreadableScript
from distdbg.lint.script.work_limit import WorkLimit

HEAD = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

model = DDP(torch.nn.Linear(2, 2))
"""
#: names of shapes, one part of each, and how often the number of calls may grow when the number of parts doubles
SHAPES = {
    "branches-with-barriers": ("if rank == {n}:\n    dist.barrier()\n", 2.6),
    "branches-that-print": ("if rank == {n}:\n    print({n})\n", 2.6),
    "one-chain-of-branches": ("elif rank == {n}:\n    dist.barrier()\n", 4.5),
    "returns-before-barriers": ("    if rank == {n}:\n        return\n    dist.barrier()\n", 3.5),
    "saves-to-one-path": ("torch.save(model.state_dict(), path)\n", 2.6),
}
STARTS = {"one-chain-of-branches": "if rank < 0:\n    pass\n", "returns-before-barriers": "def main(rank):\n"}


def count_calls(text: str) -> int:
    """The number of function calls of one lint, which does not depend on the load of the machine."""
    calls = 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    previous = sys.getprofile()
    sys.setprofile(profile)
    try:
        lint_text("train.py", text)
    finally:
        sys.setprofile(previous)
    return calls


@pytest.mark.parametrize("shape", SHAPES)
def test_work_does_not_grow_faster_than_the_pairs_of_branches(shape: str) -> None:
    part, growth = SHAPES[shape]
    all_rules()

    def text(parts: int) -> str:
        return HEAD + STARTS.get(shape, "") + "".join(part.format(n=n) for n in range(parts))

    lint_text("train.py", text(10))  # fills the caches of words and names
    assert count_calls(text(160)) < growth * count_calls(text(80))


def test_lint_ends_when_the_clock_passes_the_limit() -> None:
    text = HEAD + SHAPES["branches-with-barriers"][0].format(n=1) * 200
    assert lint_text("train.py", text, limit=WorkLimit(count().__next__, 10**6)).findings is not None
    with pytest.raises(UnreadableScript, match="more than 3 s of CPU time"):
        lint_text("train.py", text, limit=WorkLimit(count().__next__, 3))


def test_file_over_the_limit_is_skipped_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    slow, good = tmp_path / "slow.py", tmp_path / "z_good.py"
    slow.write_text(HEAD + SHAPES["branches-with-barriers"][0].format(n=1) * 200)
    good.write_text("import torch\n")
    monkeypatch.setattr(linted_files, "MAX_CPU_S_PER_FILE", 0)
    done = CliRunner().invoke(cli, ["lint", str(slow), str(good)])
    assert done.exit_code == 5
    assert f"{slow}: skipped, because it takes more than 0 s of CPU time" in done.stdout
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert CliRunner().invoke(cli, ["lint", str(slow), str(good)]).exit_code != 5
