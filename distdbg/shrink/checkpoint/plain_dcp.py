"""The task `distributed`: reduce a checkpoint of torch.distributed.checkpoint to its kept layers, in the same form."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

from distdbg.errors import EvidenceUnreadable
from distdbg.shrink.checkpoint.plain_names import PlainOrder
from distdbg.shrink.checkpoint.plain_plan import answer, part, plan_of, same_bits
from distdbg.shrink.checkpoint.staging import refuse_a_full_disk


def run(task: dict[str, Any]) -> dict[str, Any]:
    """`task`: source, folder, to (its later name), order. Only the tensors that are kept are read. What is no tensor is
    a pickle, and is left out."""
    import torch
    import torch.distributed.checkpoint as dcp

    source, folder, to = (Path(task[name]) for name in ("source", "folder", "to"))

    class SafeReader(dcp.FileSystemReader):  # type: ignore[misc]
        def read_metadata(self, *_args: Any, **_kwargs: Any) -> Any:
            """torch would unpickle it with any class that it names."""
            return metadata

    metadata = _metadata(source)
    entries = metadata.state_dict_metadata
    tensors = {name: e for name, e in entries.items() if hasattr(e, "size")}
    forms = {name: (tuple(e.size), str(e.properties.dtype)) for name, e in tensors.items()}
    plan = plan_of(forms, PlainOrder(**task["order"]))
    kept = {name: new for name, new in plan["new"].items() if new}
    others = [name for name in entries if name not in tensors]
    if others:
        plan["warnings"].append(f"left out, since they are pickles and no tensors: {', '.join(sorted(others)[:6])}")
    state = {name: torch.empty(tensors[name].size, dtype=tensors[name].properties.dtype) for name in kept}
    dcp.load(state, storage_reader=SafeReader(str(source)), no_dist=True)
    small = {new: part(tensor, plan, name) for name, tensor in state.items() for new in kept[name]}
    refuse_a_full_disk(to, sum(tensor.nbytes for tensor in small.values()))
    dcp.save(small, checkpoint_id=str(folder), no_dist=True)
    again = {name: torch.empty_like(tensor) for name, tensor in small.items()}
    dcp.load(again, checkpoint_id=str(folder), no_dist=True)
    differ = [name for name in small if not same_bits(again[name], small[name])]
    return answer(plan, differ, sum(t.numel() * t.element_size() for t in state.values()))


def _metadata(source: Path) -> Any:
    """`.metadata` is a pickle: nothing is built but what describes tensors."""
    data = (source / ".metadata").read_bytes()
    try:
        return _OnlyDescriptions(io.BytesIO(data)).load()
    except Exception as error:
        why = " ".join(str(error).split())[:160]
        raise EvidenceUnreadable(f"{source}/.metadata does not describe a distributed checkpoint: {why}",
                                 "Save it again with torch.distributed.checkpoint.") from None  # fmt: skip


class _OnlyDescriptions(pickle.Unpickler):
    _MODULES = ("torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem")
    _NAMES = ("Metadata", "MetadataIndex", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata",
              "TensorProperties", "_MEM_FORMAT_ENCODING", "StorageMeta", "_StorageInfo")  # fmt: skip
    _OTHERS = (("torch", "Size"), ("torch.serialization", "_get_layout"), ("collections", "OrderedDict"),
               ("torch._utils", "_get_dtype"), ("pathlib", "PosixPath"))  # fmt: skip

    def find_class(self, module: str, name: str) -> Any:
        import torch

        described = module in self._MODULES and name in self._NAMES
        dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if described or dtype or (module, name) in self._OTHERS:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it names {module}.{name}")
