"""The layout of well-known decoders, from the config and the tensors' names: no model is built, no torch is loaded.

Only types in whose models each layer is like any other, and one number of the config counts them. A test compares this
table with what a probe of the built models finds. What is not exactly as expected is left to the probe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from distdbg.shrink.checkpoint.config_leaves import index_lists, sequences
from distdbg.shrink.checkpoint.tensors import BITS, Tensor
from distdbg.shrink.choosing import chosen_layers, order_warning

LEAF, STACK = "num_hidden_layers", "model.layers"
#: model type -> the class of a layer. The number of the config is LEAF, the layers are in STACK.
LAYER_CLASSES = {
    "cohere": "CohereDecoderLayer",
    "ernie4_5": "Ernie4_5DecoderLayer",
    "gemma": "GemmaDecoderLayer",
    "glm4": "Glm4DecoderLayer",
    "granite": "GraniteDecoderLayer",
    "helium": "HeliumDecoderLayer",
    "llama": "LlamaDecoderLayer",
    "mistral": "MistralDecoderLayer",
    "olmo": "OlmoDecoderLayer",
    "olmo2": "Olmo2DecoderLayer",
    "phi": "PhiDecoderLayer",
    "phi3": "Phi3DecoderLayer",
    "qwen2": "Qwen2DecoderLayer",
    "qwen3": "Qwen3DecoderLayer",
    "stablelm": "StableLmDecoderLayer",
    "starcoder2": "Starcoder2DecoderLayer",
}
#: says what a layer is, by its number; all its entries are the same here
_KINDS = "layer_types"


def uniform_layout(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor], layers: int | None, keep: str
) -> dict[str, Any] | None:
    """What a probe would say of this model (see `probe.task.as_json`); None where only a probe can know.

    Raises UsageError where `keep` names a layer that is not there.
    """
    kind, count = LAYER_CLASSES.get(config["model_type"]), config.get(LEAF)
    if kind is None or type(count) is not int or count < 2 or not _is_plain(config, count):
        return None
    if layers is not None and layers > count:
        return None
    layer = _the_layer(tensors, count)
    if layer is None:
        return None
    kept = chosen_layers([0] * count, layers, keep, name=STACK)
    edits: list[list[Any]] = [[[LEAF], len(kept)]]
    if _KINDS in config:
        edits.append([[_KINDS], [config[_KINDS][i] for i in kept]])
    everywhere = list(range(count))
    size = {
        "class": kind,
        "parameters": sum(prod(t.shape) for t in layer),
        "bytes": sum(prod(t.shape) * BITS[t.dtype] // 8 for t in layer),
    }
    stack = {
        "path": STACK,
        "also": [],
        "layers": count,
        "kept": kept,
        "kinds": [{"layers": everywhere, "kept": [i for i in everywhere if i in kept], "unlike": "", **size}],
        "fields": [path[0] for path, _ in edits],
        "driven_by": LEAF,
    }
    warning = order_warning(STACK, kept)
    nothing: dict[str, Any] = {"aliases": {}, "cuts": {}, "entries": {}, "narrowed": [], "tied": []}
    return nothing | {
        "model_type": config["model_type"],
        "edits": edits,
        "stacks": [stack],
        "warnings": [warning] if warning else [],
        "modules": {name: name for name in tensors},
    }


def _is_plain(config: Mapping[str, Any], count: int) -> bool:
    """No entry that says something of single layers, but that all are of a kind."""
    if config.get("auto_map") or config.get("quantization_config") or config.get("use_sliding_window"):
        return False
    kinds = config.get(_KINDS, [""] * count)
    if not isinstance(kinds, list) or len(kinds) != count or len(set(map(str, kinds))) > 1:
        return False
    return not [path for path in (*sequences(config, (), count), *index_lists(config, (), count)) if path != (_KINDS,)]


def _the_layer(tensors: Mapping[str, Tensor], count: int) -> list[Tensor] | None:
    """The tensors of a layer, where all layers have the same by name, shape and type."""
    found: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith(f"{STACK}."):
            number, _, rest = name[len(STACK) + 1 :].partition(".")
            found.setdefault(number, {})[rest] = tensor
        elif any(part.isdecimal() for part in name.split(".")):
            return None
    alike = [_described(layer) for layer in found.values()]
    if found.keys() != {str(i) for i in range(count)} or any(one != alike[0] for one in alike):
        return None
    if any("rotary" in rest or "." not in rest for rest in found["0"]):  # older files hold what is no parameter
        return None
    return list(found["0"].values())


def _described(layer: Mapping[str, Tensor]) -> dict[str, tuple[Sequence[int], str]]:
    return {rest: (tensor.shape, tensor.dtype) for rest, tensor in layer.items()}
