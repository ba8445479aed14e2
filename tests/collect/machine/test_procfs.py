import os

import pytest

from distdbg.collect.machine import procfs
from distdbg.collect.machine.process_look import look

LINUX = "rchar: 5\nwchar: 7\nsyscr: 1\nsyscw: 1\nread_bytes: 100\nwrite_bytes: 200\ncancelled_write_bytes: 0\n"


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        pytest.param(LINUX, (105, 207), id="Linux"),
        pytest.param(LINUX.removeprefix("r"), None, id="a sandbox without rchar, as gVisor's"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_bytes_that_a_process_has_moved(monkeypatch, text, moved):
    monkeypatch.setattr(procfs.Path, "read_text", lambda _path, **_: text)
    assert procfs.io_bytes(1) == moved


def test_a_look_at_a_process_does_without_what_its_kernel_does_not_count(monkeypatch):
    plain = procfs.Path.read_text

    def of_a_sandbox(path, **how):
        return LINUX.removeprefix("r") if path.name == "io" else plain(path, **how)

    monkeypatch.setattr(procfs.Path, "read_text", of_a_sandbox)
    seen = look(os.getpid())
    assert seen["state"]
    assert "read" not in seen
    assert "written" not in seen
