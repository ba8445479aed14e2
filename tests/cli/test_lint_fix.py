"""`distdbg lint --fix` and `--diff` from outside: what is written, what is shown, and what is left alone."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from distdbg.cli import cli
from distdbg.collect.files.sources import write_source
from distdbg.errors import UsageError

ROOT = Path(__file__).resolve().parent.parent.parent
NO_SET_EPOCH = """\
from torch.utils.data import DataLoader, DistributedSampler


def main(data, model, optimizer):
    sampler = DistributedSampler(data)
    loader = DataLoader(data, sampler=sampler)
    for epoch in range(3):
        for x in loader:
            optimizer.zero_grad()
            model(x).backward()
            optimizer.step()
"""


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def lint(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["lint", *map(str, arguments)])


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_fix_inserts_one_line_and_then_finds_nothing(tmp_path: Path, ending: str) -> None:
    path = written(tmp_path, "train.py", "\ufeff" + NO_SET_EPOCH.replace("\n", ending))
    assert "missing-set-epoch" in lint(path).stdout
    done = lint(path, "--fix")
    assert done.exit_code == 0 and "missing-set-epoch" not in done.stdout
    text = path.read_bytes().decode("utf-8-sig")
    assert text == NO_SET_EPOCH.replace("        for x", "        sampler.set_epoch(epoch)\n        for x").replace(
        "\n", ending
    )
    before = path.read_bytes()
    lint(path, "--fix")
    assert path.read_bytes() == before, "a second --fix changes nothing"


def test_fix_unscales_before_the_clip(tmp_path: Path) -> None:
    path = written(tmp_path, "train.py", (ROOT / "tests/lint/clip-before-unscale/bad_plain.py").read_text())
    before = path.read_text().splitlines()
    assert "clip-before-unscale" not in lint(path, "--fix").stdout
    (new,) = [line for line in path.read_text().splitlines() if line not in before]
    assert new.strip() == "scaler.unscale_(optimizer)"


def test_fix_mends_the_file_that_the_mistake_is_in(tmp_path: Path) -> None:
    written(tmp_path, "data.py", f"import torch\n\n{NO_SET_EPOCH}")
    written(tmp_path, "train.py", "import torch\nfrom data import main\n\nmain(torch.arange(9), None, None)\n")
    done = lint(tmp_path, "--fix")
    assert "missing-set-epoch" not in done.stdout and "data.py:10: inserted sampler.set_epoch(epoch)" in done.stderr
    assert "set_epoch" not in (tmp_path / "train.py").read_text()


def test_fix_leaves_alone_what_is_not_certain(tmp_path: Path) -> None:
    maybe = NO_SET_EPOCH.replace("    sampler = Dist", "    sampler = None\n    if data:\n        sampler = Dist")
    path = written(tmp_path, "train.py", maybe)
    done = lint(path, "--fix")
    assert "missing-set-epoch" in done.stdout and f"left alone: missing-set-epoch at {path}:" in done.stderr
    assert path.read_text() == maybe


def test_fix_changes_no_notebook_and_says_so(tmp_path: Path) -> None:
    page = json.dumps({"cells": [{"cell_type": "markdown"}, {"cell_type": "code", "source": NO_SET_EPOCH}]})
    path = written(tmp_path, "n.ipynb", page)
    done = lint("--fix", path)
    assert path.read_text() == page
    assert f"left alone: missing-set-epoch at {path}:cell 2:" in done.stderr and "notebook" in done.stderr


def test_diff_shows_the_change_and_writes_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, "train.py", NO_SET_EPOCH)
    for options in (["--diff"], ["--fix", "--diff"]):
        done = lint(path, *options)
        assert path.read_text() == NO_SET_EPOCH and done.exit_code == 0
        added = [line for line in done.stdout.splitlines() if line.startswith("+") and not line.startswith("+++")]
        assert added == ["+        sampler.set_epoch(epoch)"]
    for form in ("--json", "--sarif", "--github", "--lsp"):
        assert isinstance(lint(path, "--diff", form).exception, UsageError)


def test_fix_keeps_a_declared_encoding_and_every_other_byte(tmp_path: Path) -> None:
    head = "# -*- coding: latin-1 -*-\n# \xe9t\xe9\n"
    path = written(tmp_path, "train.py", (head + NO_SET_EPOCH).encode("latin-1"))
    path.chmod(0o640)
    assert lint(path, "--fix").exit_code == 0
    assert path.read_bytes() == (
        head + NO_SET_EPOCH.replace("        for x", "        sampler.set_epoch(epoch)\n        for x")
    ).encode("latin-1")
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("kind", ["symbolic-link", "hard-link", "read-only", "full-disk"])
def test_fix_leaves_a_file_that_it_may_not_replace(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "train.py", NO_SET_EPOCH)
    other = written(tmp_path, "z_other.py", NO_SET_EPOCH)
    if kind == "symbolic-link":
        elsewhere = path.rename(tmp_path / "elsewhere.txt")
        path.symlink_to(elsewhere)
    elif kind == "hard-link":
        os.link(path, tmp_path / "second.txt")
    elif kind == "read-only":
        path.chmod(0o444)
    else:
        monkeypatch.setattr("os.rename", _fail_for(path, os.rename))
    done = lint(path, other, "--fix")
    assert done.exit_code == 5
    assert path.read_text() == NO_SET_EPOCH and "set_epoch" in other.read_text()
    assert f"left alone: missing-set-epoch at {path}:" in done.stderr and "the file was not written: " in done.stderr
    assert path.is_symlink() == (kind == "symbolic-link")
    assert not list(tmp_path.glob(".*")), "no temporary file is left"


def _fail_for(path: Path, rename: Callable[[str, str], None]) -> Callable[[str, str], None]:
    def fail(source: str, target: str) -> None:
        if target == str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), target)
        rename(source, target)

    return fail


def test_fix_keeps_a_file_that_changed_since_it_was_read(tmp_path: Path) -> None:
    path = written(tmp_path, "train.py", NO_SET_EPOCH)
    with pytest.raises(OSError, match="it has changed since it was read"):
        write_source(path, NO_SET_EPOCH.replace("range(3)", "range(4)"), "")
    shift_jis = b"# coding: cp932\nx = '\xfa\x4a'\n"  # decoded and encoded again it is 87 54
    path.write_bytes(shift_jis)
    with pytest.raises(OSError, match="cp932"):
        write_source(path, shift_jis.decode("cp932"), "")
    assert path.read_bytes() == shift_jis
