"""Inputs of every modality that a model takes beside text: the gradients of what connects a tower need them.

Token ids are real and stay on the CPU, so that the places of images and sounds among them can be read; what is computed
is on the meta device. How many tokens an image or a sound takes, the model's own tower says.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from distdbg.shrink.probe.building import brief
from distdbg.shrink.verify.comparing import PASS, Kept
from distdbg.shrink.verify.inputs import LENGTH, SOUNDS, inputs_for, masks_for
from distdbg.shrink.verify.measuring import measure, on_meta_only

#: modality -> (the method that gives its features, names of the token that stands for it in a config)
_KNOWN = {
    "image": ("get_image_features", ("image_token_id", "image_token_index")),
    "audio": ("get_audio_features", ("audio_token_id", "audio_token_index")),
}
#: modality -> what a part that takes nothing else names as its main input
_MAIN = {"image": ("pixel_values",), "audio": SOUNDS}


def modalities(model: Any) -> Iterator[str]:
    """Those that the model takes by themselves, or in a text, as tokens of their own."""
    for modality, (_, tokens) in _KNOWN.items():
        in_text = any(isinstance(getattr(model.config, t, None), int) for t in tokens)
        if in_text or model.main_input_name in _MAIN[modality]:
            yield modality


def compare_gradients(full: Any, small: Any, stacks: Sequence[Kept]) -> dict[str, str]:
    """`gradients_image`, `gradients_audio`: the same parameters of the whole model get a gradient, what lies between a
    tower and the text included."""
    return {f"gradients_{modality}": _compared(full, small, modality, stacks) for modality in modalities(full)}


def _compared(full: Any, small: Any, modality: str, stacks: Sequence[Kept]) -> str:
    try:
        return _judged(_with_gradient(full, modality), _with_gradient(small, modality), small, stacks)
    except Exception as error:
        return f"not run, because {brief(error)}"


def _with_gradient(model: Any, modality: str) -> set[str]:
    model.zero_grad(set_to_none=True)
    found = measure(model, model, inputs_of(model, modality), [])
    if found.why_no_gradients:
        raise LookupError(f"backward raised {found.why_no_gradients}")
    if not found.gradients:
        raise LookupError("no parameter gets a gradient")
    return found.gradients


def _judged(full: set[str], small: set[str], model: Any, stacks: Sequence[Kept]) -> str:
    for name, _ in model.named_parameters(remove_duplicate=False):
        if not any((name in small) == (there in full) for there in _counterparts(name, stacks)):
            return f"fail: {name} gets {'a' if name in small else 'no'} gradient, unlike in the full model"
    return PASS


def _counterparts(name: str, stacks: Sequence[Kept]) -> Iterator[str]:
    """The parameter that this one stands for; and the one at its distance from the end: of a tower whose last layers
    are not used, the small one's last are not."""
    for stack in stacks:
        if name.startswith(f"{stack.path}."):
            number, _, rest = name[len(stack.path) + 1 :].partition(".")
            yield f"{stack.path}.{stack.kept[int(number)]}.{rest}"
            yield f"{stack.path}.{stack.layers - len(stack.kept) + int(number)}.{rest}"
            return
    yield name


def inputs_of(model: Any, modality: str) -> dict[str, Any]:
    """Keyword arguments for `model.forward`: an image or a sound, in a text where the model takes text.

    Raises LookupError where what it takes is not known, and whatever the tower raises.
    """
    import torch

    if model.main_input_name in _MAIN[modality]:
        return inputs_for(model)
    method, names = _KNOWN[modality]
    if not hasattr(model, method):
        raise LookupError(f"the model has no {method}, which would say how many tokens it takes")
    token = next(v for t in names if isinstance(v := getattr(model.config, t, None), int))
    tower = _tower(model, modality)
    own = inputs_for(tower)
    call = getattr(model, method)
    takes, known = set(inspect.signature(call).parameters), set(inspect.signature(model.forward).parameters)
    names_of = {"hidden_states": "pixel_values", "grid_thw": "image_grid_thw"}
    given = {names_of.get(k, k): v for k, v in own.items() if k != "use_cache"}
    for sound in SOUNDS:
        given |= masks_for(given[sound], takes | known) if sound in given else {}
    if not set(given) <= known:
        raise LookupError(f"forward takes no {', '.join(sorted(set(given) - known))}")
    with torch.no_grad(), on_meta_only():
        features = call(**{k: v for k, v in given.items() if k in takes})
    count = _rows(features, _width(model))
    ids = torch.zeros(1, LENGTH + count, dtype=torch.long)
    ids[0, 1 : 1 + count] = token
    if token == 0:
        ids += (ids == 0).long().roll(1)
    found = {"input_ids": ids, **given}
    if "mm_token_type_ids" in known:
        found["mm_token_type_ids"] = (ids == token).long() * (1 if modality == "image" else 2)
    if "use_cache" in known:
        found["use_cache"] = False
    return found


def _tower(model: Any, modality: str) -> Any:
    """The outermost part that takes pixels, or sounds, as its main input."""
    wanted = _MAIN[modality]
    for path, module in model.named_modules():
        named = getattr(module, "main_input_name", "") in wanted and hasattr(module, "config")
        patches = modality == "image" and {"hidden_states", "grid_thw"} <= _takes(module)
        if path and (named or patches):
            return module
    raise LookupError(f"no part of the model takes {' or '.join(wanted)}")


def _takes(module: Any) -> set[str]:
    return set(inspect.signature(module.forward).parameters)


def _width(model: Any) -> int:
    return int(model.get_input_embeddings().weight.shape[1])


def _rows(features: Any, width: int) -> int:
    """How many rows as wide as a token's the tower gave."""
    import torch
    from torch.utils._pytree import tree_leaves

    pooled = getattr(features, "pooler_output", None)
    found = tree_leaves(features if pooled is None else pooled)
    rows = sum(t.numel() // width for t in found if isinstance(t, torch.Tensor) and t.shape[-1] == width)
    if not rows:
        raise LookupError("its features are not as wide as its tokens")
    return int(rows)
