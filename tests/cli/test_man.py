"""Each command has a man page, and `distdbg man` writes them."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from distdbg.cli import cli
from distdbg.errors import EXIT_REFUSED
from tests.cli.test_exits import ALL


def test_each_command_has_a_man_page(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["man", str(tmp_path / "share" / "man1")])
    assert done.exit_code == 0, done.output
    pages = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "share" / "man1").iterdir()}
    assert {f"distdbg-{name.replace(' ', '-')}.1" for name in ALL} <= pages.keys()
    launch = pages["distdbg-launch.1"]
    assert ".B \\-\\-rdzv\\-endpoint VALUE\n" in launch and "distdbg launch \\-\\-nodes 2" in launch
    assert not [name for name, text in pages.items() if re.search(r"^\.(?!TH|SH|PP|TP|B|nf|fi)", text, re.MULTILINE)]


def test_a_folder_that_takes_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "distdbg.1").mkdir()
    done = CliRunner().invoke(cli, ["man", str(tmp_path)])
    assert getattr(done.exception, "exit_code", done.exit_code) == EXIT_REFUSED, done.output
