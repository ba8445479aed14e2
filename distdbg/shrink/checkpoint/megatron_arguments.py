"""Find the iteration of a Megatron checkpoint, and make its arguments fit the layers that are kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distdbg.errors import EvidenceUnreadable
from distdbg.evidence import jsonl
from distdbg.given_file import read_given
from distdbg.shrink.checkpoint.config_file import COUNTS
from distdbg.shrink.checkpoint.layer_names import number_of
from distdbg.shrink.checkpoint.source import resolve_within

TRACKER = "latest_checkpointed_iteration.txt"
#: a number N says what layer i is, from 0 on; a list has an entry a layer
_EVERY: dict[str, Callable[[int, int], int]] = {
    "moe_layer_freq": lambda i, n: int(i % n == 0),
    "linear_attention_freq": lambda i, n: int((i + 1) % n != 0),
    "window_attn_skip_freq": lambda i, n: int((i + 1) % n != 0),
    "no_rope_freq": lambda i, n: int((i + 1) % n == 0),
}
_PATTERNS = ("hybrid_layer_pattern", "hybrid_override_pattern")
_STAGE, _NEXT_TOKENS = "|", "/"
_BLOCKS = "heterogeneous_layers_config_encoded_json"
#: how uneven stages were asked for: kept layers are shared evenly
_UNEVEN = (
    "num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage", "decoder_first_pipeline_num_layers",
    "decoder_last_pipeline_num_layers", "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split",
    "pipeline_model_parallel_layout",
)  # fmt: skip


def iteration_of(folder: Path) -> Path:
    """Return the folder of the iteration that the tracker names, or `folder` if it has no tracker.

    Raises EvidenceUnreadable if that iteration is not there.
    """
    tracker = folder / TRACKER
    if not tracker.is_file():
        return folder
    resolve_within(folder, TRACKER)
    try:
        text = read_given(tracker).decode("utf-8", "replace").strip()
    except OSError as error:
        why = f"{tracker} cannot be read: {error.strerror}"
        raise EvidenceUnreadable(why, "Name the folder of an iteration.") from None
    iteration = number_of(text)
    name = text if iteration is None else f"iter_{iteration:07d}"
    if iteration is None and text != "release":
        raise EvidenceUnreadable(f"{tracker} names no iteration: {text[:40]!r}", "Name the folder of an iteration.")
    if not (folder / name).is_dir():
        raise EvidenceUnreadable(f"{tracker} names {name}, which is not there", "Name the folder of another iteration.")
    resolve_within(folder, name)
    return folder / name


@dataclass(frozen=True)
class Stages:
    """`pipeline` stages of `virtual` chunks each."""

    pipeline: int
    virtual: int


def stages_for(layers: int, before: Stages) -> Stages:
    """Return the most stages and chunks, up to those before, that share `layers` evenly."""
    pipeline = max(n for n in range(1, before.pipeline + 1) if layers % n == 0)
    virtual = max(n for n in range(1, before.virtual + 1) if layers % (pipeline * n) == 0)
    return Stages(pipeline, virtual if pipeline > 1 else 1)


def followed(
    arguments: Mapping[str, Any], stacks: Sequence[Mapping[str, Any]], after: Stages
) -> tuple[dict[str, Any], list[str]]:
    """The arguments of the small model, and warnings."""
    left = {stack["layers"]: len(stack["kept"]) for stack in stacks}
    new = {k: left.get(v, v) if k in COUNTS and type(v) is int else v for k, v in arguments.items()}
    for stack in stacks:
        new |= {k: v for k, v in _of_each_layer(arguments, stack["layers"], stack["kept"]).items() if v is not None}
    layers = len(stacks[0]["kept"])
    sizes = {
        "pipeline_model_parallel_size": after.pipeline,
        "transformer_pipeline_model_parallel_size": after.pipeline,
        "virtual_pipeline_model_parallel_size": after.virtual if after.virtual > 1 else None,
        "num_virtual_stages_per_pipeline_rank": after.virtual if after.virtual > 1 else None,
        "num_layers_per_virtual_pipeline_stage":
            layers // (after.pipeline * after.virtual) if after.virtual > 1 else None,
    }  # fmt: skip
    new |= {name: size for name, size in sizes.items() if arguments.get(name) is not None}
    uneven = [name for name in _UNEVEN if arguments.get(name)]
    new |= {name: False if arguments[name] is True else None for name in uneven}
    return new, [f"the arguments' {name} is taken out: the layers are shared evenly" for name in uneven]


def _of_each_layer(arguments: Mapping[str, Any], layers: int, kept: Sequence[int]) -> dict[str, Any]:
    """Arguments that say something of single layers; None where they say nothing of these."""
    found: dict[str, Any] = {}
    for name, rule in _EVERY.items():
        value = arguments.get(name)
        if type(value) is int and value > 0:
            chosen = [rule(i, value) for i in kept]
            found[name] = value if chosen == [rule(i, value) for i in range(len(kept))] else chosen
        elif isinstance(value, list) and len(value) == layers:
            found[name] = [value[i] for i in kept]
    for name in _PATTERNS:
        value = arguments.get(name)
        main, separator, rest = value.partition(_NEXT_TOKENS) if isinstance(value, str) else ("", "", "")
        letters = main.replace(_STAGE, "")
        if len(letters) == layers:
            found[name] = "".join(letters[i] for i in kept) + separator + rest
    return found | {_BLOCKS: _blocks(arguments.get(_BLOCKS), layers, kept)}


def _blocks(text: Any, layers: int, kept: Sequence[int]) -> str | None:
    """A heterogeneous model's description, with a block a layer."""
    try:
        described = jsonl.parse(text) if isinstance(text, str) else None
    except ValueError:
        return None
    blocks = described.get("block_configs") if isinstance(described, dict) else None
    if not isinstance(blocks, list) or len(blocks) != layers:
        return None
    assert isinstance(described, dict)
    return json.dumps(described | {"block_configs": [blocks[i] for i in kept]})
