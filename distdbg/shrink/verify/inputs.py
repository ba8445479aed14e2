"""Make inputs for a model's forward from its config and its signature, and try them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from distdbg.shrink.probe.building import json_values
from distdbg.shrink.verify.samples import GRIDS, SOUNDS, called, pictures, renamed, sounds, videos
from distdbg.shrink.vocabulary.token_ids import named_ids

#: tokens, or frames, of one sequence
LENGTH = 16
#: tokens of an input are among the first so many
_FIRST_TOKENS = 1000
_BATCH = 1


def inputs_for(model: Any, tokens: int = LENGTH) -> dict[str, Any]:
    """Keyword arguments for `model.forward`. Raises LookupError where its main input is of an unknown kind.

    Images and sounds have one of several shapes, and no config says which: it is the first with which the model runs.
    """
    name, takes = getattr(model, "main_input_name", "input_ids"), takes_of(model)
    if name == "pixel_values" or ("hidden_states" in takes and takes & {*GRIDS}):
        return first_that_runs(model, (with_the_rest(model, given) for given in pictures(takes, model.config)))
    if name == "pixel_values_videos":
        names = called(takes, "video")
        seen = (renamed(made, names) for made in videos(set(names), model.config))
        return first_that_runs(model, (with_the_rest(model, given) for given in seen))
    if name in SOUNDS:
        candidates = sounds(takes - {*SOUNDS} | {name}, model.config)
        return first_that_runs(model, (with_the_rest(model, given) for given in candidates))
    if name == "input_ids":
        given = {name: tokens_for(tokens, model)}
        # two towers that are compared (CLIP) need both inputs, and say so by a config for each
        towers = hasattr(model.config, "projection_dim") and hasattr(model.config, "vision_config")
        if "pixel_values" in takes and towers:
            given |= next(pictures({"pixel_values"}, model.config))
        return with_the_rest(model, given)
    raise LookupError(f"no input is known for {name!r}")


def takes_of(module: Any) -> set[str]:
    """What its forward can be given by name."""
    return set(inspect.signature(module.forward).parameters)


def first_that_runs(model: Any, candidates: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The first input that runs, else the first one, whose error says most. Raises LookupError without candidates."""
    first = None
    for inputs in candidates:
        first = first or inputs
        if runs(model, inputs):
            return inputs
    if first is None:
        raise LookupError("no input is known for what its forward takes")
    return first


def runs(model: Any, inputs: dict[str, Any]) -> bool:
    try:
        dry(model, inputs)
    except Exception:
        return False
    return True


def dry(call: Any, inputs: Mapping[str, Any]) -> Any:
    """The result of `call(**inputs)`, of a model or one of its methods, without gradients. Raises what it raises."""
    import torch

    with torch.no_grad():
        return call(**as_the_weights(getattr(call, "__self__", call), inputs))


def as_the_weights(model: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Pixels and samples in the type of the model's weights."""
    import torch

    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    is_float = {name: isinstance(v, torch.Tensor) and v.is_floating_point() for name, v in inputs.items()}
    return {name: value.to(dtype) if is_float[name] else value for name, value in inputs.items()}


def with_the_rest(model: Any, given: dict[str, Any]) -> dict[str, Any]:
    """These inputs, and what else the model cannot do without."""
    parameters = inspect.signature(model.forward).parameters
    found = dict(given)
    for name in ("input_ids", "qformer_input_ids"):
        if name in parameters and name not in given and _is_needed(parameters[name], model):
            found[name] = tokens_for(LENGTH, model)
    if getattr(model.config, "is_encoder_decoder", False) and "decoder_input_ids" in parameters:
        length = given["input_ids"].shape[1] if "input_ids" in given else LENGTH
        found["decoder_input_ids"] = tokens_for(length, model)
    if "use_cache" in parameters:
        found["use_cache"] = False
    return found


def _is_needed(parameter: inspect.Parameter, model: Any) -> bool:
    """Whether the forward needs the parameter: it has no default, or the model compares images with texts."""
    return parameter.default is inspect.Parameter.empty or (
        model.main_input_name == "pixel_values" and hasattr(model.config, "text_config")
    )


def tokens_for(length: int, model: Any) -> Any:
    """Tokens to which the model's config gives no role."""
    import torch

    rows = _rows(model)
    plain = sorted({*range(rows)} - named_ids(json_values(model.config), rows)) or [0]
    return torch.tensor([[plain[(7 * at + 5) % len(plain)] for at in range(length)]] * _BATCH)


def _rows(model: Any) -> int:
    """How many tokens there are to choose from, by the config and the embedding; a model of texts and images may have
    neither at its top."""
    configs = [model.config, *(getattr(model.config, name, None) for name in getattr(model.config, "sub_configs", ()))]
    known = [getattr(config, "vocab_size", None) for config in configs]
    with suppress(Exception):
        known.append(model.get_input_embeddings().num_embeddings)
    return min([_FIRST_TOKENS, *(rows for rows in known if type(rows) is int and rows > 0)])
