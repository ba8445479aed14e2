"""The task `distributed`: reduce a checkpoint of torch.distributed.checkpoint to its kept layers, in the same form."""

from __future__ import annotations

import argparse
import io
import pickle
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distdbg.errors import EvidenceUnreadable
from distdbg.given_file import read_given
from distdbg.plain_text import first_words
from distdbg.shrink.checkpoint.inert import Inert
from distdbg.shrink.checkpoint.layer_names import all_renumbered, numbered_prefixes
from distdbg.shrink.checkpoint.megatron_arguments import Stages, followed, stages_for
from distdbg.shrink.checkpoint.pickled import load_safely, loaded_safely, save
from distdbg.shrink.checkpoint.plain_names import PlainOrder
from distdbg.shrink.checkpoint.plain_plan import answer, part, plan_of, same_bits, split_name
from distdbg.shrink.checkpoint.source import is_relative_name, resolve_within
from distdbg.shrink.checkpoint.staging import refuse_a_full_disk

#: what Megatron writes beside the shards, and in later versions among them
_COMMON, _COMMON_ENTRY = "common.pt", "common_state/shard_0_1"
_REMEDY = "Save it again without what the loader refuses."
#: chosen, not measured
_MAX_METADATA_BYTES = 1 << 30
#: of an object that Megatron cut as it cuts tensors: where this part begins, and how many there are
_SHARD = re.compile(r"(?P<key>.*)/shard_(?P<at>\d{1,9}(?:\.\d{1,9})*)_(?P<of>\d{1,9}(?:\.\d{1,9})*)", re.ASCII)
#: an optimizer's states in buckets of many parameters: no row of them is a layer's
_BUCKETS = "dp_group_idx"


@dataclass(frozen=True)
class _Bytes:
    """What is no tensor, as it lies in the checkpoint: a pickle, which nobody here opens."""

    data: bytes


def run(task: dict[str, Any]) -> dict[str, Any]:
    """`task`: source, folder, to (its later name), order. Only the tensors that are kept are read."""
    source, folder, to = (Path(task[name]) for name in ("source", "folder", "to"))
    metadata = _metadata(source)
    entries = metadata.state_dict_metadata
    tensors = {name: e for name, e in entries.items() if hasattr(e, "size") and _BUCKETS not in name}
    forms = {name: (tuple(e.size), str(e.properties.dtype)) for name, e in tensors.items()}
    megatron = (source / _COMMON).is_file() or _COMMON_ENTRY in entries
    plan = plan_of(forms, replace(PlainOrder(**task["order"]), together=megatron))
    buckets = [name for name in entries if _BUCKETS in name]
    if buckets:
        plan["warnings"].append("the optimizer's states are left out, since they are in buckets of many layers: load "
                                "it with --no-load-optim or --finetune")  # fmt: skip
    others = [name for name in entries if name not in tensors and name not in buckets]
    plan["kept"] |= _also_numbered(others, plan["stacks"])
    plan["new"] |= {name: _renumbered_object(name, plan) for name in others} | {name: [] for name in buckets}
    state = _read(source, metadata, (name for name, new in plan["new"].items() if new))
    small = {new: tensor if isinstance(tensor, _Bytes) else part(tensor, plan, name)
             for name, tensor in state.items() for new in plan["new"][name]}  # fmt: skip
    if _COMMON_ENTRY in small:
        small[_COMMON_ENTRY] = _common_entry(small[_COMMON_ENTRY].data, plan)
    refuse_a_full_disk(to, sum(_size(value) for value in small.values()))
    _write(folder, small, _paths(metadata.planner_data or {}, plan["new"]))
    if (source / _COMMON).is_file():
        save(_common(load_safely(resolve_within(source, _COMMON), _REMEDY), plan), folder / _COMMON)
    again = _read(folder, _metadata(folder), small)
    differ = [name for name, value in small.items() if not _same(again[name], value)]
    return answer(plan, differ, sum(map(_size, state.values())))


def _read(source: Path, metadata: Any, names: Iterable[str]) -> dict[str, Any]:
    """The tensors, and the bytes of what is none. Nothing is unpickled but descriptions of tensors."""
    import torch
    import torch.distributed.checkpoint as dcp

    class SafeReader(dcp.FileSystemReader):  # type: ignore[misc]
        def read_metadata(self, *_args: Any, **_kwargs: Any) -> Any:
            """torch would unpickle it with any class that it names."""
            return metadata

    class RawPlanner(dcp.DefaultLoadPlanner):  # type: ignore[misc]
        def load_bytes(self, read_item: Any, value: io.BytesIO) -> None:
            self.state_dict[read_item.dest_index.fqn] = _Bytes(value.getvalue())

    entries = metadata.state_dict_metadata
    state = {name: torch.empty(entries[name].size, dtype=entries[name].properties.dtype)
             if hasattr(entries[name], "size") else _Bytes(b"") for name in names}  # fmt: skip
    planner = RawPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    dcp.load(state, storage_reader=SafeReader(str(source)), planner=planner, no_dist=True)
    return state


def _write(folder: Path, small: dict[str, Any], paths: Mapping[str, Any]) -> None:
    import torch.distributed.checkpoint as dcp

    class RawPlanner(dcp.DefaultSavePlanner):  # type: ignore[misc]
        def set_up_planner(self, *args: Any, **kwargs: Any) -> None:
            super().set_up_planner(*args, **kwargs)
            self.mappings = dict(paths)

        def transform_object(self, write_item: Any, object: Any) -> Any:
            return (
                io.BytesIO(object.data) if isinstance(object, _Bytes) else super().transform_object(write_item, object)
            )

    dcp.save(small, checkpoint_id=str(folder), planner=RawPlanner(), no_dist=True)


def _paths(before: Mapping[str, tuple[Any, ...]], new: Mapping[str, list[str]]) -> dict[str, tuple[Any, ...]]:
    """Where each value is in the nested dicts that were saved: `dcp_to_torch_save` makes these again."""
    found = {}
    for name, keys in before.items():
        texts = tuple(map(str, keys))
        for after in new.get(name, ()):
            renamed = split_name(after, texts) if ".".join(texts) == name else (after,)
            found[after] = tuple(k if type(k) is int else text for k, text in zip(keys, renamed, strict=False))
    return found


def _also_numbered(names: Iterable[str], stacks: Iterable[Mapping[str, Any]]) -> dict[str, list[int]]:
    """Prefixes that number what is no tensor as a stack numbers its layers: an optimizer's settings by parameter."""
    kept = {(stack["path"].rpartition(".")[2], stack["layers"]): stack["kept"] for stack in stacks}
    found = {}
    for prefix, numbers in numbered_prefixes(names).items():
        layers = kept.get((prefix.rpartition(".")[2], len(numbers)))
        if layers is not None and numbers == set(range(len(numbers))):
            found[prefix] = layers
    return found


def _renumbered_object(name: str, plan: Mapping[str, Any]) -> list[str]:
    """The new names of what is no tensor: by its layer's number, or by its part where all layers are in one."""
    shard = _SHARD.fullmatch(name)
    stack = next((s for s in plan["stacks"] if s.get("stacked") and name.startswith(f"{s['path']}.")), None)
    if shard is None or stack is None or int(shard["of"].split(".")[0]) != stack["layers"]:
        return all_renumbered(name, plan["kept"])
    first, *rest = shard["at"].split(".")
    of = ".".join([str(len(stack["kept"])), *shard["of"].split(".")[1:]])
    return [f"{shard['key']}/shard_{'.'.join([str(new), *rest])}_{of}"
            for new, old in enumerate(stack["kept"]) if old == int(first)]  # fmt: skip


def _common(common: dict[Any, Any], plan: dict[str, Any]) -> dict[Any, Any]:
    """What Megatron keeps beside its tensors, with arguments that follow."""
    arguments = common.get("args")
    if not isinstance(arguments, argparse.Namespace):
        return common
    size = getattr(arguments, "pipeline_model_parallel_size", 1)
    virtual = getattr(arguments, "virtual_pipeline_model_parallel_size", None)
    after = stages_for(len(plan["stacks"][0]["kept"]), Stages(size, virtual or 1))
    new, warnings = followed(vars(arguments), plan["stacks"], after)
    plan["warnings"] += warnings
    return common | {"args": argparse.Namespace(**new)}


def _common_entry(data: bytes, plan: dict[str, Any]) -> _Bytes:
    found = loaded_safely(io.BytesIO(data), f"the entry {_COMMON_ENTRY}", _REMEDY)
    if not isinstance(found, list) or len(found) != 1 or not isinstance(found[0], dict):
        return _Bytes(data)
    written = io.BytesIO()
    save([_common(found[0], plan)], written)
    return _Bytes(written.getvalue())


def _size(value: Any) -> int:
    return len(value.data) if isinstance(value, _Bytes) else int(value.nbytes)


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) if isinstance(b, _Bytes) else same_bits(a, b)


def _metadata(source: Path) -> Any:
    """`.metadata` is a pickle: nothing is built but what describes tensors. Its files must be in the folder."""
    path = resolve_within(source, ".metadata")
    try:
        data = read_given(path, _MAX_METADATA_BYTES)
        metadata = _OnlyDescriptions(io.BytesIO(data)).load()
        files = {str(stored.relative_path) for stored in metadata.storage_data.values()}
    except Exception as error:
        why = first_words(" ".join(str(error).split()), 160)
        raise EvidenceUnreadable(f"{source}/.metadata does not describe a distributed checkpoint: {why}",
                                 "Save it again with torch.distributed.checkpoint.") from None  # fmt: skip
    for file in sorted(files):
        if not is_relative_name(file):
            raise EvidenceUnreadable(f"{source}/.metadata names {file!r}, which is not a file beside it",
                                     "Fetch the checkpoint again.")  # fmt: skip
        resolve_within(source, file)
    return metadata


class _OnlyDescriptions(pickle.Unpickler):
    _MODULES = ("torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem")
    _NAMES = ("Metadata", "MetadataIndex", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata",
              "TensorProperties", "_MEM_FORMAT_ENCODING", "StorageMeta", "_StorageInfo")  # fmt: skip
    _OTHERS = (("torch", "Size"), ("torch.serialization", "_get_layout"), ("collections", "OrderedDict"),
               ("torch._utils", "_get_dtype"), ("pathlib", "PosixPath"))  # fmt: skip

    def find_class(self, module: str, name: str) -> Any:
        import torch.distributed.checkpoint.metadata

        if module.startswith("megatron."):  # its own descriptions: with more than torch's, or of how it saved
            return torch.distributed.checkpoint.metadata.Metadata if name == "MCoreMetadata" else Inert
        described = module in self._MODULES and name in self._NAMES
        dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if described or dtype or (module, name) in self._OTHERS:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it names {module}.{name}")
