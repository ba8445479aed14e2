"""An option that names a file to write refuses what is no regular file, before any work is done."""

from __future__ import annotations

import os

import pytest
from click.testing import CliRunner

from distdbg.cli import cli

COMMANDS = (
    ("explain", ".", "--html"),
    ("report", "--html"),
    ("hang-dump", "--html"),
    ("diff", ".", ".", "--html"),
    ("memory", "analyze", ".", "--html"),
    ("memory", "analyze", ".", "--svg"),
    ("memory", "analyze", ".", "--png"),
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("kind", ["link", "FIFO", "folder"])
def test_no_output_replaces_what_is_no_regular_file(words, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other, odd = tmp_path / "other", tmp_path / "odd"
    other.write_text("precious")
    match kind:
        case "link":
            odd.symlink_to(other)
        case "FIFO":
            os.mkfifo(odd)
        case "folder":
            odd.mkdir()
    before = odd.lstat()
    done = CliRunner().invoke(cli, [*words, str(odd)])
    assert done.exit_code == 2 and "odd" in done.output and "Traceback" not in done.output, done.output
    assert other.read_text() == "precious"
    assert (odd.lstat().st_mode, odd.lstat().st_ino) == (before.st_mode, before.st_ino)
