"""The work on a file grows with its length, and ends with a reason if it takes too long all the same."""

from __future__ import annotations

import ast
import sys
import textwrap
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner

from distdbg.cli import cli
from distdbg.collect.files import linted_files
from distdbg.lint import all_rules
from distdbg.lint.linting import FilesLinter, lint_text
from distdbg.lint.script import modules
from distdbg.lint.script.parsing import UnreadableScript
from distdbg.lint.script.work_limit import WorkLimit

HEAD = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

model = DDP(torch.nn.Linear(2, 2))
"""
STEP = """\
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
#: names of shapes, one part of each, and how often the number of calls may grow when the number of parts doubles
SHAPES = {
    "branches-with-barriers": ("if rank == {n}:\n    dist.barrier()\n", 2.6),
    "branches-that-print": ("if rank == {n}:\n    print({n})\n", 2.6),
    "one-chain-of-branches": ("elif rank == {n}:\n    dist.barrier()\n", 4.5),
    "returns-before-barriers": ("    if rank == {n}:\n        return\n    dist.barrier()\n", 3.5),
    "saves-to-one-path": ("torch.save(model.state_dict(), path)\n", 2.6),
    "steps-in-a-row": (f"    x = batches[{{n}}]\n{STEP}", 2.6),
    "optimizers-in-a-row": (f"    optimizer = torch.optim.SGD(model.parameters(), 0.1)\n    x = {{n}}\n{STEP}", 2.6),
    "loops-in-a-row": (f"    for x in loader:\n{textwrap.indent(STEP, '    ')}", 2.6),
    "loaders-in-a-row": (
        f"    loader = DataLoader(data, shuffle=True)\n    for x in loader:\n{textwrap.indent(STEP, '    ')}",
        2.6,
    ),
    "evaluations-in-a-row": (
        "    model.eval()\n    for x in loader:\n        total += model(x).sum().item()\n"
        f"    model.train()\n    x = {{n}}\n{STEP}",
        2.6,
    ),
}
STARTS = {
    "one-chain-of-branches": "if rank < 0:\n    pass\n",
    "returns-before-barriers": "def main(rank):\n",
    **dict.fromkeys(
        [name for name in SHAPES if name.endswith("-in-a-row")], "def main(loader, batches, data, total):\n"
    ),
}


class CallClock:
    """Counts function calls, which do not depend on the load of the machine."""

    def __enter__(self) -> CallClock:
        self._calls, self._previous = 0, sys.getprofile()
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_error: object) -> None:
        sys.setprofile(self._previous)

    def _profile(self, frame: object, event: str, argument: object) -> None:
        self._calls += event in ("call", "c_call")

    def read(self) -> int:
        return self._calls


def count_calls(text: str) -> int:
    """The number of function calls of one lint."""
    with CallClock() as clock:
        lint_text("train.py", text)
    return clock.read()


@pytest.mark.parametrize("shape", SHAPES)
def test_work_does_not_grow_faster_than_the_pairs_of_branches(shape: str) -> None:
    part, growth = SHAPES[shape]
    all_rules()

    def text(parts: int) -> str:
        return HEAD + STARTS.get(shape, "") + "".join(part.format(n=n) for n in range(parts))

    lint_text("train.py", text(10))  # fills the caches of words and names
    assert count_calls(text(160)) < growth * count_calls(text(80))


@pytest.mark.parametrize("shape", ["one-chain-of-branches", "returns-before-barriers"])
def test_lint_ends_soon_after_the_limit_wherever_it_is(shape: str) -> None:
    """The clock counts function calls. The work on these shapes grows faster than their text."""
    all_rules()
    text = HEAD + STARTS[shape] + "".join(SHAPES[shape][0].format(n=n) for n in range(200))
    lint_text("train.py", text)  # fills the caches of words and names
    whole = count_calls(text)
    for tenth in range(1, 8):
        with CallClock() as clock, pytest.raises(UnreadableScript):
            lint_text("train.py", text, limit=WorkLimit(clock.read, whole * tenth / 10))
        assert clock.read() < whole * (tenth + 2.5) / 10


def test_limit_holds_between_the_files_that_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser cannot be interrupted: the clock is read before each file."""
    parsed: list[str] = []
    monkeypatch.setattr(modules, "parse", lambda text: parsed.append(text) or ast.parse(text))
    texts = {
        "train.py": HEAD + "from helper import step\nstep(model)\n",
        "helper.py": HEAD + "def step(m): m.train()\n",
    }
    run = FilesLinter(texts, WorkLimit(lambda: len(parsed), 0.5)).run("train.py")
    assert (run.took_too_long, len(parsed)) == (True, 1)


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
