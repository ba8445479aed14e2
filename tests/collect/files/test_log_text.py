"""A log as blocks of whole lines, however it is packed and encoded."""

import bz2
import gzip
import io
import lzma
import os
import shutil
import subprocess
import sys
import threading

import pytest

from distdbg.collect.files.log_text import STDIN, LogText

TEXT = "".join(f"line {n} é\n" for n in range(50_000))


def read(path):
    text = LogText(path)
    blocks = list(text)
    assert all(block.endswith(b"\n") for block in blocks)
    return b"".join(blocks).decode(), text


@pytest.mark.parametrize(("pack", "form"), [(gzip.compress, "gzip"), (lzma.compress, "xz"), (bz2.compress, "bzip2")])
def test_packed(tmp_path, pack, form):
    (tmp_path / "a").write_bytes(pack(TEXT.encode()))
    text, how = read(tmp_path / "a")
    assert (text, how.form, how.why_cut) == (TEXT, [form], "")


def test_zstd(tmp_path):
    if shutil.which("zstd") is None:
        pytest.skip("not possible here: no zstd")
    (tmp_path / "a").write_bytes(
        subprocess.run(["zstd", "-c"], input=TEXT.encode(), capture_output=True, check=True).stdout
    )
    text, how = read(tmp_path / "a")
    assert (text, how.form) == (TEXT, ["zstd"])


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_encodings(tmp_path, encoding):
    (tmp_path / "a").write_bytes(TEXT.encode(encoding))
    assert read(tmp_path / "a")[0] == TEXT


def test_a_packed_file_that_is_cut_short_is_read_up_to_there(tmp_path):
    (tmp_path / "a").write_bytes(gzip.compress(TEXT.encode())[:-2_000])
    how = LogText(tmp_path / "a")
    found = b"".join(how).decode(errors="replace")
    assert TEXT.startswith(found[:1_000]) and found and how.why_cut


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(TEXT.encode()))))
    assert read(STDIN)[0] == TEXT


def test_a_device_is_not_opened(tmp_path):
    how = LogText(tmp_path / "fifo")
    import os

    os.mkfifo(tmp_path / "fifo")
    assert list(how) == [] and how.why_cut


def test_zstd_needs_no_thread(tmp_path, monkeypatch):
    """Which a low `ulimit -u` refuses."""
    if shutil.which("zstd") is None:
        pytest.skip("not possible here: no zstd")

    def refused(_thread):
        raise RuntimeError("can't start new thread")

    packed = subprocess.run(["zstd", "-c"], input=os.urandom(3 << 20), capture_output=True, check=True).stdout
    (tmp_path / "a").write_bytes(packed)
    (tmp_path / "cut").write_bytes(packed[:-1000])
    monkeypatch.setattr(threading.Thread, "start", refused)
    whole = LogText(tmp_path / "a")
    assert len(b"".join(whole)) >= 3 << 20 and whole.why_cut == ""
    cut = LogText(tmp_path / "cut")
    assert b"".join(cut) and "damaged or cut short" in cut.why_cut
