"""The task `pickled`: slice a `.bin` checkpoint through torch's safe loader, which builds only tensors."""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import Any

from distdbg.errors import EvidenceUnreadable
from distdbg.evidence import jsonl
from distdbg.plain_text import first_words
from distdbg.shrink.checkpoint.inert import PICKLE, stand_ins
from distdbg.shrink.checkpoint.places import places_of
from distdbg.shrink.checkpoint.staging import refuse_a_full_disk
from distdbg.shrink.checkpoint.tensors import INDEX, ONE_FILE
from distdbg.shrink.probe.building import open_builder
from distdbg.shrink.probe.conversions import module_names

PICKLED = "pytorch_model.bin"
PICKLED_INDEX = "pytorch_model.bin.index.json"


def run(task: dict[str, Any]) -> dict[str, Any]:
    """`task`: source (folder), files (names), folder, to (its later name), probe, config (folder with the source's),
    trust. Gives origins (new name -> name), dropped, sliced."""
    import torch
    from safetensors.torch import save_file

    state: dict[str, Any] = {}
    for file in task["files"]:
        path = Path(task["source"], file)
        found = load_safely(path, "Fetch it again as safetensors.")
        found = found.get("state_dict", found)
        if not isinstance(found, dict) or not all(isinstance(v, torch.Tensor) for v in found.values()):
            raise EvidenceUnreadable(f"{path} holds no tensors by name", "Name a checkpoint that holds a state dict.")
        state.update(found)
    builder = open_builder(task["config"], task["trust"])
    modules = module_names(builder.model(builder.full), state)
    places = places_of({name: tuple(tensor.shape) for name, tensor in state.items()}, task["probe"], modules)
    origins: dict[str, str] = {}
    sliced: dict[str, Any] = {}
    small: dict[str, Any] = {}
    for name, tensor in state.items():
        part = tensor
        for cut in places.cuts.get(name, ()):
            part = part.index_select(cut.dim, torch.tensor(cut.kept))
        for new in places.new[name]:
            small[new] = part.clone().contiguous()
            origins[new] = name
            sliced |= {new: {"from": list(tensor.shape), "to": list(part.shape)}} if part is not tensor else {}
    refuse_a_full_disk(Path(task["to"]), sum(tensor.nbytes for tensor in small.values()))
    save_file(small, Path(task["folder"], ONE_FILE), metadata={"format": "pt"})
    return {
        "origins": origins,
        "sources": sorted(state),
        "sliced": sliced,
        "dropped": [n for n in state if not places.new[n]],
    }


def load_safely(path: Path, remedy: str) -> dict[Any, Any]:
    """What a torch.save file holds. Raises EvidenceUnreadable where it holds anything but tensors and plain values."""
    found = loaded_safely(path, str(path), remedy)
    if not isinstance(found, dict):
        raise EvidenceUnreadable(f"{path} holds a {type(found).__name__} and no tensors by name", "Save a state dict.")
    return found


def loaded_safely(file: Path | io.BytesIO, called: str, remedy: str) -> Any:
    """As `load_safely`, of a file or of bytes, whatever they hold. `called`: what a person calls it."""
    import torch

    try:
        named = torch.serialization.get_unsafe_globals_in_checkpoint(file)
        if isinstance(file, io.BytesIO):
            file.seek(0)
        # Megatron keeps its arguments in a namespace
        with torch.serialization.safe_globals([argparse.Namespace, *stand_ins(named)]):
            return torch.load(file, map_location="cpu", weights_only=True, mmap=isinstance(file, Path))
    except Exception as error:
        why = first_words(str(error).splitlines()[0], 160) if str(error) else type(error).__name__
        raise EvidenceUnreadable(f"{called} is not read by torch's safe loader: {why}", remedy) from None


def save(state: Any, path: Path | io.BytesIO) -> None:
    """As torch.save; classes that `load_safely` did not load get their names back."""
    import torch

    torch.save(state, path, pickle_module=PICKLE)


def pickled_files(files: list[str], index: bytes | None) -> list[str]:
    """The `.bin` files of a checkpoint, by its index where it has one."""
    if index is None:
        return [PICKLED] if PICKLED in files else []
    try:
        parsed: Any = jsonl.parse(index)
        found = sorted(set(parsed["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise EvidenceUnreadable(f"{PICKLED_INDEX} is no index like {INDEX}", "Fetch the model again.") from None
    absent = [f for f in found if f not in files]
    if absent:
        raise EvidenceUnreadable(f"{PICKLED_INDEX} names {absent[0]!r}, which is not there", "Fetch the model again.")
    return found
