"""Copy what is beside a checkpoint's weights and is small: tokenizer, processor, templates, code."""

from __future__ import annotations

from pathlib import Path

from distdbg.shrink.checkpoint.source import CheckpointSource
from distdbg.whole_file import write_whole

#: what holds weights, in any form, is not copied along
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx", ".gguf", ".npz", ".tflite",
           ".ot", ".distcp")  # fmt: skip
_LARGEST_OTHER_FILE = 200_000_000


def copy_others(source: CheckpointSource, folder: Path, leave: tuple[str, ...]) -> None:
    """Every small file that holds no weights, but those whose names are in `leave`."""
    for name in others(source, leave):
        with source.open(name) as reader:
            if reader.size > _LARGEST_OTHER_FILE:
                continue
            content = reader.read(0, reader.size)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content, private=False)


def others(source: CheckpointSource, leave: tuple[str, ...]) -> list[str]:
    """The names of files that hold no weights."""
    return [n for n in source.files() if n not in leave and not n.endswith((*WEIGHTS, ".index.json"))]
