"""A safetensors checkpoint's tensors, from its headers alone, sharded or not."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

from distdbg.errors import EvidenceUnreadable
from distdbg.shrink.checkpoint.header import PREFIX, Tensor, header_length, parse_header
from distdbg.shrink.checkpoint.source import Source

ONE_FILE = "model.safetensors"
INDEX = "model.safetensors.index.json"


def tensors_of(source: Source) -> dict[str, Tensor] | None:
    """Every tensor by name; None where the source has no safetensors at all.

    Raises EvidenceUnreadable where the index and the files do not agree.
    """
    index = index_file(source.files())
    if index is not None:
        return _sharded(source, index)
    files = [name for name in source.files() if _is_weights(name)]
    if ONE_FILE in files:
        files = [ONE_FILE]  # beside it may lie the same weights in another form
    if not files:
        return None
    found: dict[str, Tensor] = {}
    for file in files:
        for name, tensor in read_header(source, file).items():
            if name in found:
                raise EvidenceUnreadable(
                    f"{source.where}: {name!r} is in {found[name].file} and in {file}, and no index says which counts",
                    "Leave only the files of one checkpoint in the folder.",
                )
            found[name] = tensor
    return found


def index_file(files: list[str]) -> str | None:
    """The index of a sharded checkpoint. A variant's (`model.fp16.…`) only where there is no other."""
    found = [name for name in files if name.endswith(".safetensors.index.json") and "/" not in name]
    return INDEX if INDEX in found else next(iter(found), None)


def read_header(source: Source, file: str) -> dict[str, Tensor]:
    """The tensors of one file; reads its header and nothing else."""
    with source.open(file) as reader:  # type: ignore[attr-defined]
        first = reader.read(0, min(PREFIX, reader.size))
        length = header_length(file, first, reader.size)
        return parse_header(file, reader.read(PREFIX, length), reader.size)


def _is_weights(name: str) -> bool:
    return name.endswith(".safetensors") and "/" not in name and not name.startswith(("adapter", "consolidated"))


def _sharded(source: Source, index: str) -> dict[str, Tensor]:
    try:
        places = json.loads(source.small(index) or b"")["weight_map"]
        files = sorted(set(places.values()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise EvidenceUnreadable(f"{index} is no index: it has no 'weight_map' of names to files", _AGAIN) from None
    found: dict[str, Tensor] = {}
    for file in files:
        _refuse_a_bad_name(index, file)
        if file not in source.files():
            raise EvidenceUnreadable(f"{index} names {file!r}, which is not in {source.where}", _AGAIN)
        inside = read_header(source, file)
        wanted = [name for name, where in places.items() if where == file]
        absent = [name for name in wanted if name not in inside]
        if absent:
            raise EvidenceUnreadable(f"{index} says that {absent[0]!r} is in {file}, but it is not there", _AGAIN)
        found.update({name: inside[name] for name in wanted})
    return found


def _refuse_a_bad_name(index: str, file: object) -> None:
    if not isinstance(file, str):
        raise EvidenceUnreadable(f"{index} names {str(file)[:80]} as a file", _AGAIN)
    path = PurePosixPath(file)
    if path.is_absolute() or ".." in path.parts or "\\" in file or "\0" in file or not file.endswith(".safetensors"):
        raise EvidenceUnreadable(f"{index} names {file!r} as a shard, which is no file beside it", _AGAIN)


_AGAIN = "Fetch the model again; nothing was written."
