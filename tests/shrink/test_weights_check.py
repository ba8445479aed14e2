"""Bytes that are not the source's are seen."""

from __future__ import annotations

from pathlib import Path

from distdbg.shrink.checkpoint import tensors_of
from distdbg.shrink.slicing import pieces
from distdbg.shrink.source import Folder
from distdbg.shrink.weights_check import compared
from distdbg.shrink.writing import output_files, write_files
from tests.shrink import checkpoints


def test_a_byte_that_was_changed(tmp_path: Path) -> None:
    checkpoints.sharded(tmp_path / "a", 8, shape=(64, 256))
    (tmp_path / "b").mkdir()
    source = Folder(tmp_path / "a")
    taken, _ = pieces(tensors_of(source).values(), {"model.layers": [0, 7]}, {})
    write_files(source, output_files(taken), tmp_path / "b", lambda _n: None)
    assert compared(source, tmp_path / "b", taken, everything=True) == "pass"
    path = tmp_path / "b" / "model.safetensors"
    data = bytearray(path.read_bytes())
    middle = tensors_of(Folder(tmp_path / "b"))["model.layers.1.a"].start + 30_000
    data[middle] ^= 1
    path.write_bytes(data)
    said = compared(source, tmp_path / "b", taken, everything=True)
    assert said == "fail: model.layers.1.a differs from model.layers.7.a in the source"
    assert compared(source, tmp_path / "b", taken, everything=False).startswith("pass; ")  # the ends only
    data[-1] ^= 1
    path.write_bytes(data)
    assert compared(source, tmp_path / "b", taken, everything=False).startswith("fail: ")
