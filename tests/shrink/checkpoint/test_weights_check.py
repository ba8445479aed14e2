"""Bytes that are not the source's are seen."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from distdbg.shrink.checkpoint.layer_names import all_renumbered
from distdbg.shrink.checkpoint.slicing import pieces
from distdbg.shrink.checkpoint.source import Folder
from distdbg.shrink.checkpoint.tensors import tensors_of
from distdbg.shrink.checkpoint.weights_check import compared, only_nan
from distdbg.shrink.checkpoint.writing import output_files, write_files
from tests.shrink import checkpoints


def test_a_byte_that_was_changed(tmp_path: Path) -> None:
    checkpoints.sharded(tmp_path / "a", 8, shape=(64, 256))
    (tmp_path / "b").mkdir()
    source = Folder(tmp_path / "a")
    taken, _ = pieces(tensors_of(source).values(), lambda name: all_renumbered(name, {"model.layers": [0, 7]}), {})
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


@pytest.mark.parametrize(
    ("dtype", "nan", "number"),
    [
        ("F32", b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x3f"),
        ("BF16", b"\xc0\x7f", b"\x80\x7f"),
        ("F16", b"\x00\x7e", b"\x00\x3c"),
    ],
)
def test_nothing_but_nan(tmp_path: Path, dtype: str, nan: bytes, number: bytes) -> None:
    """Infinity is a number here; integers beside say nothing."""
    for values, expected in ((nan * 4, True), (nan * 3 + number, False)):
        two = {"a": (dtype, nan * 4), "b": (dtype, values), "ids": ("I64", bytes(32))}
        header, data = {}, b""
        for name, (kind, held) in two.items():
            header[name] = {"dtype": kind, "shape": [4], "data_offsets": [len(data), len(data) + len(held)]}
            data += held
        text = json.dumps(header).encode()
        (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
        assert only_nan(tmp_path) is expected
