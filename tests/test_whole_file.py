"""Whole files: what is there stays until the new file is whole, and no write follows a link or replaces a device."""

from __future__ import annotations

import os
import socket
import stat

import pytest

from distdbg import whole_file
from distdbg.whole_file import (
    NotARegularFile,
    WholeFile,
    is_foreign_folder,
    make_private_folder,
    open_own,
    why_not_trusted,
    write_link,
    write_through,
    write_whole,
)


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=["link", "dangling link", "folder", "FIFO", "socket", "device"])
def odd(request, tmp_path):
    """A path with something else than a regular file, and what must be unchanged afterwards."""
    path, other = tmp_path / "odd", tmp_path / "other"
    other.write_text("precious")
    match request.param:
        case "link":
            path.symlink_to(other)
        case "dangling link":
            path.symlink_to(tmp_path / "nothing")
        case "folder":
            path.mkdir()
        case "FIFO":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(str(path))
        case "device":
            try:
                os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 7))  # a copy of /dev/full
            except PermissionError:
                pytest.skip("not possible here: device nodes need root")
    yield path
    assert other.read_text() == "precious"
    assert not (tmp_path / "nothing").exists()
    assert not list(tmp_path.glob(".*.tmp"))


def test_only_a_regular_file_is_replaced(odd):
    before = odd.lstat()
    with pytest.raises(NotARegularFile) as error:
        write_whole(odd, "new", private=False)
    assert error.value.filename == str(odd) and error.value.strerror.startswith("it is a")
    assert (odd.lstat().st_mode, odd.lstat().st_ino) == (before.st_mode, before.st_ino)


def test_nothing_odd_is_opened_to_be_appended_to(odd):
    with pytest.raises(OSError):
        os.close(open_own(odd, os.O_WRONLY | os.O_APPEND | os.O_CREAT))


def test_a_new_file_is_private_or_as_the_umask_wants(tmp_path):
    write_whole(tmp_path / "private", b"1")
    write_whole(tmp_path / "public", b"1", private=False)
    umask = os.umask(0)
    os.umask(umask)
    assert mode_of(tmp_path / "private") == 0o600
    assert mode_of(tmp_path / "public") == 0o666 & ~umask


def test_a_replaced_file_keeps_its_mode_and_a_second_name_its_content(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    path.chmod(0o640)
    os.link(path, tmp_path / "second")
    write_whole(path, "new", private=False)
    assert (path.read_text(), mode_of(path)) == ("new", 0o640)
    assert (tmp_path / "second").read_text() == "old"
    path.chmod(0o644)
    write_whole(path, "private")
    assert mode_of(path) == 0o600


def test_a_write_that_fails_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), WholeFile(path) as file:
        file.write(b"half")
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError):
        write_through(path, lambda name: 1 / 0)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file"]


def test_writers_of_names_get_one(tmp_path):
    def write(name):
        with open(name, "w") as file:
            file.write("whole")

    write_through(tmp_path / "file", write)
    assert (tmp_path / "file").read_text() == "whole" and mode_of(tmp_path / "file") == 0o600
    assert os.listdir(tmp_path) == ["file"]


def test_a_temporary_name_that_somebody_took_is_not_used(tmp_path, monkeypatch):
    numbers = iter([b"\0\0\0\0", b"\0\0\0\1"])
    monkeypatch.setattr(whole_file.os, "urandom", lambda _: next(numbers))
    trap = tmp_path / ".file.00000000.tmp"
    trap.symlink_to(tmp_path / "elsewhere")
    write_whole(tmp_path / "file", "mine")
    assert (tmp_path / "file").read_text() == "mine"
    assert trap.is_symlink() and not (tmp_path / "elsewhere").exists()


def test_a_link_replaces_links_alone(tmp_path):
    write_link(tmp_path / "latest", "a")
    write_link(tmp_path / "latest", "b")
    assert os.readlink(tmp_path / "latest") == "b"
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileExistsError):
        write_link(tmp_path / "file", "a")
    assert (tmp_path / "file").read_text() == "mine"


def test_private_folders_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        make_private_folder(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert [mode_of(tmp_path / name) for name in ("a", "a/b")] == [0o700, 0o700]
    make_private_folder(tmp_path / "a" / "b")
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_private_folder(tmp_path / "file")


@pytest.mark.parametrize(
    ("mode", "trusted"), [(0o700, True), (0o755, True), (0o775, True), (0o1777, True), (0o777, False)]
)
def test_whom_a_folder_lets_write(tmp_path, mode, trusted):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs").chmod(mode)
    assert (why_not_trusted(tmp_path / "runs") == "") is trusted
    assert why_not_trusted(tmp_path / "nothing") == ""


@pytest.mark.skipif(os.getuid() != 0, reason="not possible here: another user's folder needs root")
def test_folder_is_foreign_if_own_files_there_have_another_owner(tmp_path, monkeypatch):
    assert not is_foreign_folder(tmp_path)
    os.chown(tmp_path, 65534, 65534)
    assert is_foreign_folder(tmp_path)
    status = os.fstat

    def squashed(descriptor):
        """As of a network file system that gives all files one owner."""
        return os.stat_result((*status(descriptor)[:4], 65534, *status(descriptor)[5:10]))

    monkeypatch.setattr(os, "fstat", squashed)
    assert not is_foreign_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []
