"""Compare what transformers would write of a loaded model with the files that it was loaded from; nothing is written.

Weights are loaded by mapping the files: a tensor that is still a part of its file, in pages that nobody has written to,
has the file's bytes, and need not be read for that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distdbg.model import grouped
from distdbg.shrink.checkpoint.source import Folder
from distdbg.shrink.checkpoint.tensors import Tensor, tensors_of
from distdbg.whole_file import write_link

_MAPS = Path("/proc/self/smaps")


@dataclass(frozen=True)
class _Mapping:
    """A part of a file in this process's memory, no page of which was written to."""

    begin: int
    end: int
    offset: int


def is_saved_as_it_is(model: Any, folder: str, again: str, unused: set[str]) -> bool:
    """Whether `save_pretrained` gives the file writer each tensor of the checkpoint in `folder`, but the `unused` ones,
    under its name and with its bytes. What is no weight is written to `again`, with links to the weights.

    False also where that cannot be seen.
    """
    stored = tensors_of(Folder(Path(folder))) or {}
    with _not_writing() as written:
        model.save_pretrained(again)
    if not written or not stored.keys() - unused <= written.keys() <= stored.keys():
        return False
    files = grouped((stored[name].file, stored[name]) for name in written)
    if not all(_are_equal(Path(folder, file), tensors, written) for file, tensors in files.items()):
        return False
    for path in Path(again).glob("*.safetensors*"):
        path.unlink()
    for path in Path(folder).glob("*.safetensors*"):
        write_link(Path(again, path.name), str(path.resolve()))
    return True


@contextmanager
def _not_writing() -> Iterator[dict[str, Any]]:
    """While it is on, transformers' writer of weights only remembers what it is given."""
    from transformers import modeling_utils

    written: dict[str, Any] = {}
    plain = getattr(modeling_utils, "safe_save_file", None)
    if plain is None:  # then all is written, and nothing is seen
        yield written
        return

    modeling_utils.safe_save_file = lambda tensors, *_args, **_kwargs: written.update(tensors)
    try:
        yield written
    finally:
        modeling_utils.safe_save_file = plain


def _are_equal(path: Path, stored: list[Tensor], written: dict[str, Any]) -> bool:
    from safetensors import safe_open

    mapped = _untouched(path)
    with safe_open(path, "pt") as file:
        for tensor in stored:
            here, there = written[tensor.name], file.get_tensor(tensor.name)
            if (here.dtype, here.shape) != (there.dtype, there.shape):
                return False
            if not _is_part_of(tensor, here, mapped) and not equal_bits(here, there):
                return False
    return True


def _is_part_of(stored: Tensor, tensor: Any, mapped: list[_Mapping]) -> bool:
    at = tensor.data_ptr()
    return tensor.is_contiguous() and any(
        m.begin <= at and at + stored.length <= m.end and at - m.begin + m.offset == stored.start for m in mapped
    )


def _untouched(path: Path) -> list[_Mapping]:
    """This process's mappings of the file without a written page; none where the system does not say."""
    found: list[_Mapping] = []
    current: _Mapping | None = None
    try:
        lines = _MAPS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    real = os.path.realpath(path)
    for line in lines:
        words = line.split(maxsplit=5)
        if not words[0].endswith(":"):  # begin-end rights offset device inode path; then a line for each figure
            begin, _, end = words[0].partition("-")
            is_it = len(words) == 6 and words[5] == real
            current = _Mapping(int(begin, 16), int(end, 16), int(words[2], 16)) if is_it else None
        elif current is not None and words[0] == "Anonymous:" and words[1] == "0":
            found.append(current)
    return found


def equal_bits(a: Any, b: Any) -> bool:
    """Bit for bit: NaN is equal to itself."""
    import torch

    same = a.dtype == b.dtype and a.shape == b.shape
    return same and bool(torch.equal(_bits(a), _bits(b)))


def _bits(tensor: Any) -> Any:
    import torch

    return tensor.contiguous().flatten().view(torch.uint8)
