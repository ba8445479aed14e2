"""Checkpoints written by hand: no torch is needed to test what only handles bytes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from distdbg.shrink.checkpoint.tensors import render_header


def write(path: Path, names: Iterable[str], shape: tuple[int, ...] = (4, 8)) -> dict[str, bytes]:
    """A safetensors file of random F32 tensors; gives their bytes."""
    size = 4
    for n in shape:
        size *= n
    data = {name: os.urandom(size) for name in names}
    header = render_header([(n, "F32", shape, size) for n in data])
    path.write_bytes(header + b"".join(data.values()))
    return data


def sharded(
    folder: Path, layers: int, extra: Iterable[str] = ("embed.weight",), of_a_layer: Iterable[str] = "ab", **options
) -> dict[str, bytes]:
    """One shard a layer, and one for what is in no layer."""
    folder.mkdir(parents=True, exist_ok=True)
    places: dict[str, str] = {}
    data: dict[str, bytes] = {}
    for number in range(layers):
        file = f"model-{number}.safetensors"
        data |= write(folder / file, [f"model.layers.{number}.{x}" for x in of_a_layer], **options)
        places |= {f"model.layers.{number}.{x}": file for x in of_a_layer}
    data |= write(folder / "rest.safetensors", extra, **options)
    places |= dict.fromkeys(extra, "rest.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return data
