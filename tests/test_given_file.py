"""Files that a person names: of a limited length, never a FIFO that nobody writes to, never without end."""

import os

import pytest

from distdbg.given_file import read_given


def test_the_whole_content(tmp_path):
    (tmp_path / "f").write_bytes(b"a\nb")
    assert read_given(tmp_path / "f") == b"a\nb"
    assert read_given(tmp_path / "f", most=3) == b"a\nb"


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("long", "longer than 1 MiB"),
        ("endless", "it is a device"),
        ("waits", "it is a device"),
        ("fifo", "FIFO"),
        ("none", "No such file"),
    ],
)
def test_what_is_refused(tmp_path, name, says):
    (tmp_path / "long").write_bytes(b"#" * ((1 << 20) + 1))
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "waits").symlink_to("/dev/kmsg")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match=says):
        read_given(tmp_path / name)


def test_a_pipe_of_the_shells_is_read():
    """`--hosts <(command)`."""
    reader, writer = os.pipe()
    os.write(writer, b"a\n")
    os.close(writer)
    assert read_given(f"/dev/fd/{reader}") == b"a\n"
    os.close(reader)
