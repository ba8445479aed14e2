"""Read a model's config.json and its own code from its source, with care, and lay them out for transformers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distdbg.errors import EvidenceUnreadable, NothingToAnalyse, Refused, UsageError
from distdbg.shrink.checkpoint.config_leaves import Path as ConfigPath
from distdbg.shrink.checkpoint.config_leaves import dotted, integers
from distdbg.shrink.checkpoint.source import CheckpointSource, is_relative_name
from distdbg.shrink.choosing import numbers_named
from distdbg.whole_file import write_whole

CONFIG = "config.json"
#: words in the names of numbers of layers, and of lists of them
LAYER_WORDS = ("layer", "depth", "block")
_MOST_LAYERS = 100_000
#: the usual names of a number of layers: many others with "layer" in them may be below 0
COUNTS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers",
          "encoder_num_layers", "decoder_num_layers")  # fmt: skip


def read_config(source: CheckpointSource) -> dict[str, Any]:
    text = source.small(CONFIG)
    if text is None:
        raise NothingToAnalyse(f"{source.where} has no {CONFIG}", _without_a_config(source.files()))
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}: {error.msg}"
        raise EvidenceUnreadable(
            f"{source.where}: {CONFIG} is not JSON: {where}", "Correct that line, or fetch the file again."
        ) from None
    except (ValueError, RecursionError):
        raise EvidenceUnreadable(f"{source.where}: {CONFIG} is not JSON", "Fetch it again.") from None
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise EvidenceUnreadable(
            f"{source.where}: {CONFIG} is no model's config: it has no 'model_type'", "Fetch it again."
        )
    _refuse_the_absurd(source, config)
    if config.get("auto_map") and not isinstance(config["auto_map"], dict):
        raise EvidenceUnreadable(f"{source.where}: 'auto_map' in {CONFIG} is no JSON object", "Fetch it again.")
    return config


def _without_a_config(files: list[str]) -> str:
    """What to do with a folder of another form."""
    if any(re.search(r"(^|/)mp_rank_\d+_model_states\.pt$", name) for name in files):
        return "DeepSpeed wrote it: run its zero_to_fp32.py, and name the file that comes out."
    if any(re.search(r"(^|/)mp_rank_\d+", name) for name in files):
        return (
            "Megatron wrote it with a file for each rank (--ckpt-format torch), which shrink-model does not read. "
            "Convert it with Megatron's --ckpt-convert-format torch_dist --ckpt-convert-save DIR, and name DIR."
        )
    if any(name.endswith(".gguf") for name in files):
        return "Name the model that its GGUF file was converted from: a folder with safetensors, or its hub id."
    return "Name a model's folder, or its config.json."


def _refuse_the_absurd(source: CheckpointSource, config: Mapping[str, Any]) -> None:
    """A config may make a list with an entry a layer before anything else is looked at."""
    for path, value in integers(config):
        if str(path[-1]).endswith(("layer", "layers", "depth", "blocks")) and value > _MOST_LAYERS:
            raise EvidenceUnreadable(f"{source.where}: {dotted(path)} in {CONFIG} is {value}: no model has so many",
                                     "Fetch it again.")  # fmt: skip
        if path[-1] in COUNTS and value < 0:
            raise EvidenceUnreadable(f"{source.where}: {dotted(path)} in {CONFIG} is {value}: it counts layers",
                                     "Fetch it again.")  # fmt: skip


def refuse_absent_layers(config: Mapping[str, Any], keep: str, layers: int | None) -> None:
    """Raises UsageError where `--keep` names a layer, or `--layers` a number, that no stack of this config can have."""
    counts = [n for path, n in integers(config) if _key(path).removesuffix("s").endswith(LAYER_WORDS)]
    if not any(path[-1] in COUNTS for path, _ in integers(config)):
        return
    most = max(counts)
    if any(not -most <= n < most for n in numbers_named(keep)):
        raise UsageError(f"--keep {keep}: the config counts {most} layers at most, 0 to {most - 1}",
                         "Name layers that there are.")  # fmt: skip
    if layers is not None and layers > most:
        raise UsageError(f"--layers {layers}: the config counts {most} layers at most", f"Give 1 to {most}.")


def _key(path: ConfigPath) -> str:
    """The name of a leaf, or of the list that it is in."""
    return next((part for part in reversed(path) if isinstance(part, str)), "")


def refuse_untrusted(source: CheckpointSource, *, trust: bool) -> None:
    """Raises Refused where the model's own code would run without the user's consent."""
    if read_config(source).get("auto_map") and not trust:
        raise Refused(
            f"{source.where} brings its own code, which would be run to build the model",
            "Read it, and give --trust-remote-code if you trust it.",
        )


def code_and_config(source: CheckpointSource, folder: Path, *, trust: bool) -> None:
    """Into `folder`; code only where it may run."""
    write_whole(folder / CONFIG, json.dumps(read_config(source)))  # without a byte order mark
    if trust:
        _refuse_code_elsewhere(source)
    for name in source.files():
        if trust and name.endswith(".py"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_whole(folder / name, source.small(name) or b"")


def _refuse_code_elsewhere(source: CheckpointSource) -> None:
    """The user trusts the code in the source. Raises Refused if a config (the processor's, the tokenizer's) names a
    module by a path that leads out of it."""
    for file in (name for name in source.files() if name.endswith(CONFIG)):
        try:
            config = json.loads(source.small(file) or b"")
            modules = config["auto_map"].values()
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
            continue  # without code of its own; if it is damaged, its reader reports it
        names = [name for value in modules for name in (value if isinstance(value, list) else [value])]
        # OWNER/MODEL--MODULE.CLASS names a module of another repository
        wrong = next((n for n in names if isinstance(n, str) and not is_relative_name(n.rpartition("--")[2])), None)
        if wrong is not None:
            raise Refused(f"{source.where}: 'auto_map' in {file} names {wrong!r}, which is not a module beside it",
                          "Read the model's code before you trust it.")  # fmt: skip
