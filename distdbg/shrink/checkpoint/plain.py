"""Shrink checkpoints that come without a model's config: adapters, state dicts, torch's distributed checkpoints."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from distdbg.errors import EvidenceUnreadable, Refused
from distdbg.shrink.asking import ask
from distdbg.shrink.checkpoint.layer_names import all_renumbered
from distdbg.shrink.checkpoint.megatron_arguments import TRACKER, iteration_of
from distdbg.shrink.checkpoint.plain_names import PlainOrder, plain_stacks, rows_kept
from distdbg.shrink.checkpoint.quantized import renumbered_names
from distdbg.shrink.checkpoint.slicing import Cut, pieces
from distdbg.shrink.checkpoint.source import Folder
from distdbg.shrink.checkpoint.staging import refuse_a_full_disk, refuse_an_occupied, staged
from distdbg.shrink.checkpoint.tensors import read_header
from distdbg.shrink.checkpoint.weights_check import compared
from distdbg.shrink.checkpoint.writing import (
    RECORD,
    SILENT,
    ShrinkProgress,
    WeightsFile,
    copy_others,
    record,
    write_files,
    write_public_json,
)
from distdbg.shrink.choosing import order_warning
from distdbg.whole_file import write_whole

ADAPTER_CONFIG, ADAPTER = "adapter_config.json", "adapter_model.safetensors"
DCP_METADATA = ".metadata"
#: form -> the child's task that reduces it
_TASKS = {"torch": "plain", "dcp": "distributed"}
#: what is made anew, or names the files that were there
_MADE = (RECORD, "integrity.json")
_TORCH_FILES = (".pt", ".pth", ".bin", ".ckpt")
_PEFT_PREFIX = "base_model.model."


def plain_kind(src: str) -> str | None:
    """`adapter`, `dcp`, `safetensors` or `torch`; None for what has a config of its own, or is no local path."""
    path = Path(src)
    if path.is_dir() and os.access(path, os.R_OK | os.X_OK) and not (path / "config.json").exists():
        if (path / ADAPTER_CONFIG).is_file():
            return "adapter"
        return "dcp" if (iteration_of(path) / DCP_METADATA).is_file() else None
    if path.is_file() and path.suffix == ".safetensors":
        return "safetensors"
    return "torch" if path.is_file() and path.suffix in _TORCH_FILES else None


def make_plain(src: str, destination: Path, order: PlainOrder, progress: ShrinkProgress = SILENT) -> dict[str, Any]:
    """Write the kept layers to `destination`, in the form that the source has; gives what shrink.json says."""
    refuse_an_occupied(destination)
    kind, path = plain_kind(src), Path(src)
    if kind in _TASKS:
        return _by_torch(kind, path, destination, order, progress)
    real = path / ADAPTER if kind == "adapter" else path.resolve()  # a file that the user named may be a link
    file = ADAPTER if kind == "adapter" else path.name
    source = Folder(real.parent)
    if real.name not in source.files():
        raise Refused(f"{path} has no {ADAPTER}", "Save the adapter as safetensors, or name its .bin file.")
    tensors = read_header(source, real.name)
    forms = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
    stacks = plain_stacks(forms, replace(order, gaps=kind == "adapter"))
    kept = {stack["path"]: stack["kept"] for stack in stacks}
    cuts = {name: [Cut(0, tuple(rows))] for name, rows in rows_kept(forms, stacks).items()}
    taken, dropped = pieces(tensors.values(), lambda name: all_renumbered(name, kept), cuts)
    output = WeightsFile(file, tuple(taken))
    refuse_a_full_disk(destination, output.size)
    plan = hashlib.sha256(repr((kept, taken)).encode()).hexdigest()
    with staged(destination, plan) as partial:
        write_files(source, [output], partial, progress.counter(output.size))
        if kind == "adapter":
            _adapter_config(source, partial, kept)
        made = _record(kind or "", stacks, partial, {}, taken=taken, dropped=dropped, read=source.bytes_read)
        made["verified"]["weights"] = compared(source, partial, taken, everything=False, file=file)
        return _finished(made, partial)


def _by_torch(kind: str, path: Path, destination: Path, order: PlainOrder, progress: ShrinkProgress) -> dict[str, Any]:
    """By a task of the child. A folder with several iterations becomes one with that which its tracker names."""
    source = iteration_of(path) if path.is_dir() else path
    plan = hashlib.sha256(repr((str(path), order)).encode()).hexdigest()
    with progress.stage("reading the checkpoint"), staged(destination, plan, resume=False) as partial:
        folder = partial if source == path else partial / source.name
        folder.mkdir(exist_ok=True)
        answer = ask(_TASKS[kind], source=str(source), folder=str(folder), to=str(destination), order=vars(order))
        if source.is_dir():
            copy_others(Folder(source), folder, _MADE)
        if source != path:
            write_whole(partial / TRACKER, Folder(path).small_at(TRACKER), private=False)
        made = _record(kind, answer["stacks"], partial, answer, taken=[], dropped=[], read=answer["bytes_read"])
        made["verified"]["weights"] = answer["weights"]
        return _finished(made, partial)


def _record(
    kind: str, stacks: list[Any], folder: Path, answer: dict[str, Any], *, taken: Any, dropped: Any, read: int
) -> dict[str, Any]:
    warnings = ["nothing but names and shapes says what a layer is: no model was built and nothing of one verified"]
    if kind == "adapter":
        warnings.append("the adapter is for a base with the same layers kept: give that the same --keep")
    warnings += filter(None, (order_warning(stack["path"], stack["kept"]) for stack in stacks))
    probe = {"model_type": kind, "stacks": stacks, "narrowed": [], "warnings": [*warnings, *answer.get("warnings", ())],
             "pickled": {k: answer[k] for k in ("origins", "dropped", "sliced") if k in answer}}  # fmt: skip
    return record(probe, taken, dropped, folder, read=read, random=False)


def _finished(made: dict[str, Any], folder: Path) -> dict[str, Any]:
    failed = next((said for said in made["verified"].values() if said.startswith("fail")), None)
    if failed:
        raise Refused(f"what was written is not what was read: {failed}", "Try again; look at the disk.")
    write_public_json(folder / RECORD, made)
    return made


def _adapter_config(source: Folder, folder: Path, kept: Mapping[str, list[int]]) -> None:
    """Layer numbers in it follow: `layers_to_transform`, and module names (`rank_pattern`, `target_modules`, …)."""
    try:
        config = json.loads(source.small(ADAPTER_CONFIG) or b"")
        assert isinstance(config, dict)
    except (ValueError, AssertionError, RecursionError):
        raise EvidenceUnreadable(f"{source.where}: {ADAPTER_CONFIG} is no JSON object", "Fetch it again.") from None
    names = dict(kept) | {prefix.removeprefix(_PEFT_PREFIX): layers for prefix, layers in kept.items()}
    layers = next(iter(kept.values()))
    chosen = config.get("layers_to_transform")
    config = renumbered_names(config, names)
    if isinstance(chosen, list):
        config["layers_to_transform"] = [new for new, old in enumerate(layers) if old in chosen]
    write_public_json(folder / ADAPTER_CONFIG, config)
