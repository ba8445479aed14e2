"""A folder that is sent through a stream: whole, cut at every block, changed, hostile."""

import io
import tarfile

import pytest

from distdbg.launch.io.folder_stream import receive_folder, send_folder

FILES = {"stacks/00000.json": b"0" * 700, "stacks/00001.json": b"1" * 513, "nodes/0000.json": b"{}"}
BLOCK = 512


def sent(folder):
    for name, content in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    stream = io.BytesIO()
    send_folder(folder, {"ranks": [0, 1]}, stream)
    return stream.getvalue()


def received(data, most_bytes=1 << 20):
    taken = {}
    account, cut = receive_folder(io.BytesIO(data), taken.__setitem__, most_bytes=most_bytes)
    return account, cut, taken


def test_whole_folder(tmp_path):
    assert received(sent(tmp_path)) == ({"ranks": [0, 1]}, "", FILES)


def test_every_cut_is_noticed(tmp_path):
    data = sent(tmp_path)
    for length in {*range(0, len(data), BLOCK), *range(1, len(data), 97)}:
        account, cut, taken = received(data[:length])
        assert taken.items() <= FILES.items(), length
        if taken != FILES:  # else only the padding of the last file is missing
            assert (account, cut) == ({}, "") or f"{3 - len(taken)} of 3 files" in cut, length


def test_changed_file_is_not_taken(tmp_path):
    _, cut, taken = received(sent(tmp_path).replace(b"1" * 513, b"1" * 512 + b"2"))
    assert "1 of 3 files" in cut and "stacks/00001.json" not in taken


@pytest.mark.parametrize("most_bytes", [0, 600])
def test_bound_of_bytes(tmp_path, most_bytes):
    _, _, taken = received(sent(tmp_path), most_bytes)
    assert len(taken) < 3


def test_links_and_unlisted_files_are_not_taken(tmp_path):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w|") as archive:
        for name, kind in (("found.json", tarfile.REGTYPE), ("a", tarfile.SYMTYPE), ("../b", tarfile.REGTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/shadow"
            archive.addfile(member, io.BytesIO())
    assert received(data.getvalue())[2] == {}
