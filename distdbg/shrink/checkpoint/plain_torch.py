"""The task `plain`: reduce a torch.save file or a distributed checkpoint to its kept layers, in the same form."""

from __future__ import annotations

import argparse
import io
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from distdbg.errors import EvidenceUnreadable
from distdbg.shrink.checkpoint.config_file import COUNTS
from distdbg.shrink.checkpoint.layer_names import all_renumbered
from distdbg.shrink.checkpoint.pickled import load_safely
from distdbg.shrink.checkpoint.plain_names import PlainOrder, plain_stacks, rows_kept
from distdbg.shrink.checkpoint.staging import refuse_a_full_disk

#: keys from the top of a checkpoint to a tensor
Keys = tuple[str, ...]
_REMEDY = "Save its state dicts alone, and name that file."


def run(task: dict[str, Any]) -> dict[str, Any]:
    """`task`: kind (torch or dcp), source, folder, to (its later name), order. The answer has what shrink.json says of
    it."""
    order = PlainOrder(**task["order"])
    source, folder, to = (Path(task[name]) for name in ("source", "folder", "to"))
    return (_distributed if task["kind"] == "dcp" else _one_file)(source, folder, to, order)


def _one_file(source: Path, folder: Path, to: Path, order: PlainOrder) -> dict[str, Any]:
    import torch

    whole = load_safely(source, _REMEDY)
    tensors = dict(_tensors(whole, ()))
    names = {".".join(keys): keys for keys in tensors}
    forms = {name: (tuple(tensors[keys].shape), str(tensors[keys].dtype)) for name, keys in names.items()}
    plan = _plan(forms, order)
    small: dict[str, Any] = {}
    _copy_the_rest(whole, small, plan, ())
    for name, keys in names.items():
        for new in plan["new"][name]:
            _put(small, _split(new, keys), _part(tensors[keys], plan, name))
    path = folder / source.name
    refuse_a_full_disk(to, sum(tensor.nbytes for _, tensor in _tensors(small, ())))
    torch.save(small, path)
    again = dict(_tensors(load_safely(path, _REMEDY), ()))
    differ = [n for n, keys in names.items() for new in plan["new"][n]
              if not torch.equal(again[_split(new, keys)], _part(tensors[keys], plan, n))]  # fmt: skip
    return _answer(plan, f"fail: {differ[0]} differs" if differ else "pass", source.stat().st_size)


def _plan(forms: Mapping[str, Any], order: PlainOrder) -> dict[str, Any]:
    stacks = plain_stacks(forms, order)
    kept = {stack["path"]: stack["kept"] for stack in stacks}
    new = {name: all_renumbered(name, kept) for name in forms}
    rows = rows_kept(forms, stacks)
    sliced = {n: {"from": list(forms[n][0]), "to": [len(kept), *forms[n][0][1:]]} for n, kept in rows.items()}
    return {"stacks": stacks, "kept": kept, "new": new, "rows": rows, "sliced": sliced, "warnings": []}


def _part(tensor: Any, plan: Mapping[str, Any], name: str) -> Any:
    """A copy of what stays of a tensor."""
    rows = plan["rows"].get(name)
    return tensor.clone() if rows is None else tensor[rows]


def _answer(plan: dict[str, Any], weights: str, read: int) -> dict[str, Any]:
    new, _, _ = (plan.pop(key) for key in ("new", "kept", "rows"))
    origins = {b: a for a, names in new.items() for b in names}
    return plan | {"origins": origins, "dropped": [a for a, names in new.items() if not names], "weights": weights,
                   "bytes_read": read}  # fmt: skip


def _tensors(value: Mapping[Any, Any], at: Keys) -> Iterator[tuple[Keys, Any]]:
    import torch

    for key, inner in value.items():
        if isinstance(key, str) and isinstance(inner, torch.Tensor):
            yield (*at, key), inner
        elif isinstance(key, str) and isinstance(inner, Mapping):
            yield from _tensors(inner, (*at, key))


def _copy_the_rest(value: Mapping[Any, Any], small: dict[Any, Any], plan: Mapping[str, Any], at: Keys) -> None:
    """Values that are no tensors are kept, or dropped with their layer (`layers.3._extra_state`). States by number
    (an optimizer's) name no layer: they are dropped."""
    import torch

    for key, inner in value.items():
        here = (*at, key)
        if isinstance(inner, torch.Tensor):
            continue
        if not isinstance(key, str):
            small[key] = inner
            continue
        for new in (_split(name, here)[-1] for name in all_renumbered(".".join(here), plan["kept"])):
            if not isinstance(inner, Mapping):
                small[new] = _recounted(new, inner, plan)
            elif any(not isinstance(k, str) for k in inner):
                plan["warnings"].append(f"{'.'.join(here)} is left out: its states have numbers and no names")
            else:
                small[new] = {}
                _copy_the_rest(inner, small[new], plan, here)


def _recounted(key: str, value: Any, plan: Mapping[str, Any]) -> Any:
    """A number of layers among the arguments in the file follows (`n_layer` of nanoGPT, `num_layers` of Megatron)."""
    if isinstance(value, argparse.Namespace):
        return argparse.Namespace(**{k: _recounted(k, v, plan) for k, v in vars(value).items()})
    left = {stack["layers"]: len(stack["kept"]) for stack in plan["stacks"]}
    return left[value] if key in COUNTS and type(value) is int and value in left else value


def _split(name: str, keys: Keys) -> Keys:
    """A dotted name as keys again; each key has as many parts as it had."""
    parts = name.split(".")
    found = []
    for key in keys:
        count = key.count(".") + 1
        found.append(".".join(parts[:count]))
        parts = parts[count:]
    return tuple(found)


def _put(small: dict[str, Any], keys: Keys, tensor: Any) -> None:
    for key in keys[:-1]:
        small = small.setdefault(key, {})
    small[keys[-1]] = tensor


def _distributed(source: Path, folder: Path, to: Path, order: PlainOrder) -> dict[str, Any]:
    """Only the tensors that are kept are read. What is no tensor is a pickle, and is left out."""
    import torch
    import torch.distributed.checkpoint as dcp

    class SafeReader(dcp.FileSystemReader):  # type: ignore[misc]
        def read_metadata(self, *_args: Any, **_kwargs: Any) -> Any:
            """torch would unpickle it with any class that it names."""
            return metadata

    metadata = _metadata(source)
    entries = metadata.state_dict_metadata
    tensors = {name: e for name, e in entries.items() if hasattr(e, "size")}
    forms = {name: (tuple(e.size), str(e.properties.dtype)) for name, e in tensors.items()}
    plan = _plan(forms, order)
    kept = {name: new for name, new in plan["new"].items() if new}
    others = [name for name in entries if name not in tensors]
    if others:
        plan["warnings"].append(f"left out, since they are pickles and no tensors: {', '.join(sorted(others)[:6])}")
    state = {name: torch.empty(tensors[name].size, dtype=tensors[name].properties.dtype) for name in kept}
    dcp.load(state, storage_reader=SafeReader(str(source)), no_dist=True)
    small = {new: _part(tensor, plan, name) for name, tensor in state.items() for new in kept[name]}
    refuse_a_full_disk(to, sum(tensor.nbytes for tensor in small.values()))
    dcp.save(small, checkpoint_id=str(folder), no_dist=True)
    again = {name: torch.empty_like(tensor) for name, tensor in small.items()}
    dcp.load(again, checkpoint_id=str(folder), no_dist=True)
    differ = [name for name in small if not torch.equal(again[name], small[name])]
    read = sum(t.numel() * t.element_size() for t in state.values())
    return _answer(plan, f"fail: {differ[0]} differs" if differ else "pass", read)


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
