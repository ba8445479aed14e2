"""Make the arguments in a Megatron checkpoint fit the layers that are kept, and the stages that hold them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from distdbg.evidence import jsonl
from distdbg.shrink.checkpoint.config_file import COUNTS
from distdbg.shrink.checkpoint.megatron_stages import Stages

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


def stages_of(arguments: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """The pipeline stages and the expert ranks that the arguments name; None where they do not."""
    sizes = (arguments.get(name) for name in ("pipeline_model_parallel_size", "expert_model_parallel_size"))
    pipeline, expert = (size if type(size) is int else None for size in sizes)
    return pipeline, expert


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
