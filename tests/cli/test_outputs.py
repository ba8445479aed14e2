"""An option that names a file to write refuses what is no regular file, before any work is done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from distdbg.cli import cli
from distdbg.errors import UsageError
from tests.collect.log_runs import WrittenRun

COMMANDS = (
    ("explain", ".", "--html"),
    ("report", "--html"),
    ("report", "--bundle"),
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


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_output_replaces_a_file_of_another_kind(words, tmp_path, monkeypatch):
    """`explain --html logs/*` names the first log as the page."""
    monkeypatch.chdir(tmp_path)
    logs = [tmp_path / name for name in ("rank0.log", "rank1.log")]
    for log in logs:
        log.write_text("RuntimeError: boom\n")
    done = CliRunner().invoke(cli, [*words, *map(str, logs)])
    assert done.exit_code == 2 and "rank0.log" in done.output and "Traceback" not in done.output, done.output
    assert all(log.read_text() == "RuntimeError: boom\n" for log in logs)


@pytest.mark.parametrize("before", ["", "<!doctype html>\nold", None])
def test_a_page_replaces_a_page(before, tmp_path):
    log, page = tmp_path / "rank0.log", tmp_path / "page.html"
    log.write_text("RuntimeError: boom\n")
    if before is not None:
        page.write_text(before)
    done = CliRunner().invoke(cli, ["explain", "--html", str(page), str(log)])
    assert done.exit_code == 10 and "boom" in page.read_text(), done.output


def test_no_output_replaces_an_input_by_another_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("logs").mkdir()
    Path("link").symlink_to("logs")
    page = Path("logs/rank0.html")
    page.write_text("<html>\nRuntimeError: boom\n")
    done = CliRunner().invoke(cli, ["explain", "--html", "link/rank0.html", str(page)])
    assert isinstance(done.exception, UsageError) and "an input" in str(done.exception), done.output
    assert page.read_text() == "<html>\nRuntimeError: boom\n"


@pytest.mark.parametrize("words", [("diff", "{0}", "{1}"), ("report", "{0}"), ("explain", "{0}")], ids=" ".join)
def test_no_output_replaces_a_record_of_a_run(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = [WrittenRun(tmp_path / name).say(0, "step 1\n", 1).finish().path for name in "ab"]
    page = folders[0] / "report" / "report.html"
    page.write_text("<html>of the run")
    Path("link").symlink_to(page.parent)
    words = [word.format(*folders) for word in words]
    done = CliRunner().invoke(cli, [*words, "--html", "link/report.html"])
    assert isinstance(done.exception, UsageError) and "an input" in str(done.exception), done.output
    assert page.read_text() == "<html>of the run"


MAIN = "import sys; from distdbg.cli import main; sys.argv[0] = 'distdbg'; main()"


def started(words, redirection, folder=None):
    """The command line under a shell that redirects its standard output."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-c", MAIN, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, cwd=folder)


@pytest.mark.parametrize("words", [["completion", "bash"], ["findings"], ["findings", "--json"], ["env", "--shell"]])
def test_a_full_disk_at_standard_output_is_one_sentence(words):
    done = started(words, "> /dev/full")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "distdbg: the output cannot be written: No space left on device",
        "         Write it to another place.",
    ]


@pytest.mark.parametrize(("words", "code"), [(["explain", "nope"], 2), (["report", "nope"], 3), (["--nonsense"], 2)])
def test_full_disk_at_standard_error_keeps_the_exit_code(words, code, tmp_path):
    done = started(words, "2> /dev/full", tmp_path)
    assert (done.returncode, done.stdout) == (code, "")


def test_logs_onto_a_full_disk(tmp_path):
    made = WrittenRun(tmp_path)
    made.say(0, "step 1\n", 1).say(1, "step 1\n", 2)
    made.finish()
    done = started(["logs", made.run.id, "--merge"], "> /dev/full", tmp_path)
    assert done.returncode == 1 and done.stderr.startswith("distdbg: the output cannot be written: "), done.stderr


@pytest.mark.parametrize("words", [["findings"], ["logs"], ["runs"]])
def test_a_closed_standard_output_is_no_error_of_ours(words, tmp_path):
    WrittenRun(tmp_path).say(0, "step 1\n", 1).finish()
    done = started(words, ">&-", tmp_path)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_two_outputs_have_two_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(".")
    for other in ("X", "./X", "link/X"):
        done = CliRunner().invoke(cli, ["memory", "analyze", ".", "--svg", "X", "--png", other])
        assert isinstance(done.exception, UsageError) and "is named for two outputs" in done.exception.message, done
