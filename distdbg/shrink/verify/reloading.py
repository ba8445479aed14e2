"""Verify that transformers loads the written model, and gets the same from what it saves itself."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from distdbg.plain_text import first_words
from distdbg.shrink.checkpoint.plain_plan import same_bits
from distdbg.shrink.probe.building import Builder
from distdbg.shrink.verify.kept import PASS
from distdbg.whole_file import write_whole

#: a larger one is loaded on request only: loading takes its size in memory
LARGEST_TO_LOAD = 2_000_000_000


def loads(folder: str, builder: Builder, trust: bool, lacking: Collection[str]) -> dict[str, str]:
    """Every name and shape of the model is in the checkpoint, without loading a byte of data.

    `lacking`: what the source has not, either.
    """
    try:
        _, info = load_model(folder, builder, trust, device_map="meta", ignore_mismatched_sizes=True)
    except Exception as error:
        if not is_quantized(builder) or isinstance(error, ImportError) or weights_size(folder) > LARGEST_TO_LOAD:
            return {"names_and_shapes": _why_not(error, builder)}
        try:  # what unpacks weights may compute with them
            _, info = load_model(folder, builder, trust)
        except Exception as really:
            return {"names_and_shapes": _why_not(really, builder)}
    return {"names_and_shapes": _judged(info, lacking)}


def _why_not(error: Exception, builder: Builder) -> str:
    why = first_words(" ".join(str(error).split()), 160)
    if isinstance(error, ImportError):
        return f"not run, because a package is missing: {why}"
    if is_quantized(builder):
        # what quantized weights are loaded with may need a device, or a package that tells so in its own way
        return f"not run, because these quantized weights cannot be loaded here: {why}"
    return f"fail: transformers does not load it: {type(error).__name__}: {why}"


def _judged(info: Mapping[str, Any], lacking: Collection[str]) -> str:
    missing = {*info["missing_keys"]} - {*lacking}
    if missing:
        return f"fail: {min(missing)} is not in the checkpoint"
    if info["mismatched_keys"]:
        return f"fail: {min(map(str, info['mismatched_keys']))} has another shape"
    if info["missing_keys"]:
        return f"pass; the source lacks {len(info['missing_keys'])} tensors, too, such as {min(info['missing_keys'])}"
    unused = info["unexpected_keys"]
    return f"pass; the model does not use {len(unused)} tensors, such as {min(unused)}" if unused else PASS


def round_trip(folder: str, builder: Builder, trust: bool, everything: bool) -> dict[str, str]:
    """Loaded, saved by transformers, loaded again: every tensor bit for bit."""
    size = weights_size(folder)
    if size > LARGEST_TO_LOAD and not everything:
        return {"save_and_reload": f"not run, because it takes {size / 1e9:.1f} GB of memory; --verify full does it"}
    try:
        model, _ = load_model(folder, builder, trust)
    except Exception as error:
        return {"save_and_reload": _why_not(error, builder)}
    return {"save_and_reload": _saved_and_loaded(model, folder, builder, trust)}


def _saved_and_loaded(model: Any, folder: str, builder: Builder, trust: bool) -> str:
    with tempfile.TemporaryDirectory(prefix="distdbg-shrink-") as again:
        try:
            model.save_pretrained(again)
        except Exception as error:
            if not is_quantized(builder):
                raise
            why = f"transformers loads these quantized weights, and cannot save them: {type(error).__name__}"
            return f"not run, because {why}"
        _copy_code(folder, again)
        second, _ = load_model(again, builder, trust)
    before, after = model.state_dict(), second.state_dict()
    for name, value in before.items():
        if name not in after or not same_bits(value, after[name]):
            if is_quantized(builder):
                why = f"transformers does not save these quantized weights as it loads them ({name}); they load"
                return f"not run, because {why}"
            return f"fail: {name} is another after saving and loading"
    return PASS


def _copy_code(folder: str, again: str) -> None:
    for code in Path(folder).glob("*.py"):
        write_whole(Path(again, code.name), code.read_bytes())


def is_quantized(builder: Builder) -> bool:
    return bool(builder.full.get("quantization_config"))


def weights_size(folder: str) -> int:
    return sum(f.stat().st_size for f in Path(folder).glob("*.safetensors"))


def load_model(folder: str, builder: Builder, trust: bool, **options: Any) -> Any:
    return builder.model_class.from_pretrained(
        folder, output_loading_info=True, local_files_only=True, trust_remote_code=trust, dtype="auto", **options
    )
