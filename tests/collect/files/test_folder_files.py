"""Folders that somebody names: loops of links, odd files, too many files."""

import os
import subprocess

import pytest

from distdbg.collect.files import folder_files
from distdbg.collect.files.folder_files import FolderFiles
from distdbg.collect.files.sources import find_sources
from distdbg.collect.runs.explaining import load
from distdbg.errors import DistdbgError
from tests.evidence.recorder.test_recorder_sets import written


def names(found):
    return [path.name for path in found]


def test_links_are_not_followed_and_are_named(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "b.log").write_text("x")
    found = FolderFiles(tmp_path)
    assert names(found) == ["b.log", "self"]
    assert found.unread == [(str(tmp_path / "a" / "up"), "it is a link to a folder, and links are not followed")]


@pytest.fixture
def deep(tmp_path):
    """Python's own rmtree, which pytest cleans up with, does not come down to the bottom of it."""
    yield tmp_path
    subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)


def test_folders_deeper_than_pythons_stack(deep):
    here = os.open(deep, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("deep.log", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    assert names(FolderFiles(deep, (".log",))) == ["deep.log"]


def test_too_many_files_are_said(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_files, "MOST_FILES", 5)
    for n in range(9):
        (tmp_path / f"{n}.log").touch()
    found = FolderFiles(tmp_path)
    assert len(list(found)) == 5
    assert found.unread == [(f"the rest of {tmp_path}", "it holds more than 5 files")]


def test_a_folder_that_cannot_be_listed(tmp_path):
    found = FolderFiles(tmp_path / "gone")
    assert list(found) == []
    assert found.unread == [(str(tmp_path / "gone"), "No such file or directory")]


def test_odd_files_are_named_and_the_rest_is_explained(tmp_path):
    """A link to itself, a link to the folder, a FIFO, a socket's name, a file that is not there: none blocks."""
    written(tmp_path, ranks=2)
    (tmp_path / "loop_7").symlink_to("loop_7")
    (tmp_path / "up").symlink_to(".")
    (tmp_path / "gone_8").symlink_to("nowhere")
    os.mkfifo(tmp_path / "fifo_9")
    unknown = {u.what.rpartition("/")[2]: u.because for u in load([tmp_path]).unknown}
    assert unknown["fifo_9"] == "not a regular file"
    assert "symbolic links" in unknown["loop_7"]
    assert unknown["gone_8"] == "it is missing"
    assert "link to a folder" in unknown["up"]


def test_lint_says_what_it_could_not_enter(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "self").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "b.py")
    found = {source.path.rpartition("/")[2]: source.because for source in find_sources([str(tmp_path)])}
    assert found == {
        "a.py": "",
        "b.py": "not a regular file",
        "self": "it is a link to a folder, and links are not followed",
    }


@pytest.mark.parametrize("name", ["fifo", "loop"])
def test_one_odd_file_is_one_sentence(tmp_path, name):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(DistdbgError) as error:
        load([tmp_path / name])
    assert len(str(error.value).splitlines()) <= 2
