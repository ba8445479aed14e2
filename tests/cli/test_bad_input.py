"""Whatever a command is given, it answers in a sentence or two, with a documented exit code, and soon."""

from __future__ import annotations

import os
import re
import sys

import click
import pytest

from distdbg.cli import cli, run
from distdbg.errors import EXIT_CODES, EXIT_OWN_ERROR

#: command -> how many paths it takes; what they hold is wrong in every way that a file system allows
READERS = {
    "explain": 1,
    "report": 1,
    "logs": 1,
    "top --once": 1,
    "attach": 1,
    "cancel": 1,
    "hang-dump": 1,
    "diff": 2,
    "lint": 1,
    "profile": 1,
    "replay": 1,
    "memory analyze": 1,
    "memory diff": 2,
    "memory snapshot": 1,
    "memory estimate": 1,
    "launch": 1,
    "launch --config": 1,
    "slurm-script": 1,
    "overfit": 1,
    "compile-report": 1,
    "shrink-model": 1,
}
NO_READERS = {"bisect", "completion", "env", "findings", "guards", "preflight", "runs"}
ODD = (
    "missing",
    "./missing",
    "folder",
    "empty",
    "garbage",
    "loop",
    "fifo",
    "socket",
    "dangling",
    "a\x1b[31mb\u202ec",
    "x" * 300,
)
#: a sentence of ours holds no word of Python's own
_PYTHONS = re.compile(r"Traceback|\[Errno|\b\w+(?:Error|Exception)\b|<class |object at 0x")


@pytest.fixture
def odd_things(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "garbage").write_bytes(bytes(range(256)) * 20)
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop" / "loop").symlink_to(".")
    os.mkfifo(tmp_path / "fifo")
    import socket

    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(tmp_path)
        server.bind("socket")
    (tmp_path / "dangling").symlink_to("nothing")


def test_every_command_is_tried():
    context = click.Context(cli)
    names = {word.split()[0] for word in READERS} | NO_READERS
    assert names == set(cli.list_commands(context))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("given", ODD, ids=lambda given: ascii(given)[:20])
@pytest.mark.parametrize("command", READERS)
def test_bad_input_gets_one_sentence_and_its_code(command, given, odd_things, capsys):
    if given == "empty" and command in ("launch", "overfit", "compile-report", "slurm-script"):
        pytest.skip("not possible here: an empty script is a good script, and would be run")
    words = [*command.split(), *[given] * READERS[command]]
    words += ["out"] if command == "shrink-model" else []
    streams = sys.stdout, sys.stderr
    try:
        code = run(words)
    finally:
        sys.stdout, sys.stderr = streams
    shown = capsys.readouterr()
    assert code in EXIT_CODES and code != EXIT_OWN_ERROR, shown
    assert code != 0 or command == "lint", shown
    assert len(shown.err.splitlines()) <= 3, shown.err
    assert not _PYTHONS.search(shown.err + shown.out), shown
    assert "\x1b" not in shown.err + shown.out and "\u202e" not in shown.err + shown.out, ascii(shown)
    assert not os.path.exists("out") and not os.path.exists("distdbg-runs")
