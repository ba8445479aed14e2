"""Make inputs of every modality that a model takes in addition to text.

The model itself reports how many tokens an image or a sound takes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from distdbg.shrink.checkpoint.config_leaves import Config
from distdbg.shrink.probe.building import Builder, brief
from distdbg.shrink.verify.inputs import LENGTH, dry, inputs_for, takes_of, tokens_for, with_the_rest
from distdbg.shrink.verify.measuring import operator_mode
from distdbg.shrink.verify.samples import MAIN, called, pictures, renamed, sounds, videos

#: modality -> what makes one for a function that takes these arguments
_MAKERS = {"image": pictures, "video": videos, "audio": sounds}
#: what a processor of transformers marks the tokens of a modality with
_MARKS = {"image": 1, "video": 2, "audio": 3}
#: modality -> whose tokens may stand for it in a text, where not only its own
_STANDS = {"video": ("video", "image")}
#: what a processor makes: of an image, a video or a sound; and the text, with as many places for it as the model wants
_PROCESSED = (*(main for mains in MAIN.values() for main in mains), "input_ids")
#: places that a text has while the model is asked how many it wants
_ASKED = 2
#: what transformers says where there are too few places: "tokens: 2, features: 576"
_TOO_FEW = re.compile(r"tokens:? ?\d+,? *features:? *(\d+)")


def modalities(model: Any) -> Iterator[str]:
    """Those that the model takes: by themselves, in a text as tokens of their own, or beside a text; under whatever
    longer name (`image_pixel_values`). Many configs have a token for videos of models that take none."""
    for modality, mains in MAIN.items():
        takes = any(name.endswith(main) for name in takes_of(model) for main in mains)
        if takes or (modality != "video" and _tokens(model, modality)):
            yield modality


def _tokens(model: Any, modality: str) -> list[int]:
    """What stands for it in a text, the likeliest first: the model's config says, or that of its tower. Of a video it
    may be what stands for an image (GLM-4.1V)."""
    inner = (getattr(model.config, name, None) for name in getattr(model.config, "sub_configs", None) or {})
    names = [f"{kind}_token_{end}" for kind in _STANDS.get(modality, (modality,)) for end in ("id", "index")]
    configs = (model.config, *inner)
    return list(dict.fromkeys(token for n in names for c in configs if isinstance(token := getattr(c, n, None), int)))


def inputs_of(model: Any, modality: str) -> dict[str, Any]:
    """Keyword arguments for `model.forward`: an image, a video or a sound, in a text where the model takes text.

    Raises LookupError where it takes none, and where none of the known ones will do, what the first one raises.
    """
    if model.main_input_name in MAIN[modality]:
        return inputs_for(model)
    names = called(takes_of(model), modality)
    tokens: list[int | None] = [*_tokens(model, modality)] or [None]
    first = None
    for made in _MAKERS[modality](set(names), model.config):
        given = renamed(made, names)
        for token in tokens:
            found, why = _in_a_text(model, modality, given, token)
            if why is None:
                return found
            first = first or why
    raise first or LookupError(f"forward takes no {' or '.join(MAIN[modality])}")


def _in_a_text(
    model: Any, modality: str, given: dict[str, Any], token: int | None
) -> tuple[dict[str, Any], Exception | None]:
    """With as many tokens for it as the model makes of it; and why the model does not run with that."""
    found: dict[str, Any] = {}
    text: Callable[[int], dict[str, Any]] = lambda count: _text(model, modality, given, token, count)  # noqa: E731
    try:
        count = 0 if token is None else _rows_of_the_model(model, text(_ASKED)) or _rows(model, modality, given) or 1
        found = text(count)
        dry(model, found)
    except Exception as error:
        return found, error
    return found, None


def _text(model: Any, modality: str, given: dict[str, Any], token: int | None, count: int) -> dict[str, Any]:
    import torch

    length = LENGTH if token is None else LENGTH + count
    ids = tokens_for(length, model)
    if token is None:
        return with_the_rest(model, {"input_ids": ids, **given})
    ids[0, 1 : 1 + count] = token
    if token == 0:
        ids += (ids == 0).long().roll(1)
    found = with_the_rest(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids), **given})
    if "mm_token_type_ids" in takes_of(model):
        found["mm_token_type_ids"] = (ids == token).long() * _MARKS[modality]
    return found


def _rows_of_the_model(model: Any, inputs: dict[str, Any]) -> int:
    """How many places the model wants for it: by the arguments of `get_placeholder_mask`, by the error where they are
    too few, or by the places that it fills anyway. 0 where none of these is known."""
    seen: list[int] = []
    put: list[int] = []
    said: list[int] = []
    with _asked_for_a_mask(model, seen), _put_in_places(_width(model), put):
        try:
            dry(model, inputs)
        except Exception as error:
            said = [int(number) for number in _TOO_FEW.findall(str(error))]
    return next(iter([*seen, *said, *put]), 0)


@contextmanager
def _asked_for_a_mask(model: Any, seen: list[int]) -> Iterator[None]:
    """Rows of features that reach `get_placeholder_mask`."""
    import torch

    width = _width(model)

    def listened(true: Any) -> Any:
        def listens(*args: Any, **kwargs: Any) -> Any:
            bound = inspect.signature(true).bind(*args, **kwargs).arguments
            found = [v for n, v in bound.items() if "features" in n and isinstance(v, torch.Tensor)]
            seen.extend(v.numel() // width for v in found if v.shape[-1] == width)
            return true(*args, **kwargs)

        return listens

    holders = [m for m in model.modules() if hasattr(type(m), "get_placeholder_mask")]
    for holder in holders:
        holder.get_placeholder_mask = listened(holder.get_placeholder_mask)
    try:
        yield
    finally:
        for holder in holders:
            del holder.get_placeholder_mask


def _put_in_places(width: int, put: list[int]) -> Any:
    """Rows as wide as a token's that are put where there are not as many, which raises."""
    import torch

    aten = torch.ops.aten

    def see(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if function._overloadpacket in (aten.index_put, aten.index_put_):
            places = max((part.numel() for part in args[1] if part is not None), default=0)
            if places == _ASKED and args[2].ndim == 2 and args[2].shape[1] == width:
                put.extend({args[2].shape[0]} - {1, _ASKED})
        return function(*args, **kwargs)

    return operator_mode(see)


def _rows(model: Any, modality: str, given: dict[str, Any]) -> int:
    """How many rows as wide as a token's the method gives that is asked for its features; 0 where there is none.

    Raises LookupError where they are wider or less wide: they would be put in the places all the same.
    """
    import torch
    from torch.utils._pytree import tree_leaves

    method, width = f"get_{modality}_features", _width(model)
    for call in (getattr(m, method) for m in model.modules() if hasattr(m, method)):
        taken = {k: v for k, v in given.items() if k in inspect.signature(call).parameters}
        try:
            features = dry(call, taken)
        except Exception:
            continue
        pooled = getattr(features, "pooler_output", None)
        found = tree_leaves(features if pooled is None else pooled)
        rows = sum(t.numel() // width for t in found if isinstance(t, torch.Tensor) and t.shape[-1] == width)
        if not rows:
            raise LookupError("its features are not as wide as its tokens")
        return int(rows)
    return 0


def _width(model: Any) -> int:
    return int(model.get_input_embeddings().weight.shape[1])


@dataclass(frozen=True)
class Passed:
    """One pass. why: its error, empty where there is none. takes: the shapes of what a processor gives."""

    why: str
    takes: Mapping[str, tuple[int, ...]]


def passes(builder: Builder, values: Config) -> dict[str, Passed]:
    """One pass with each kind of input (`text`, `image`, `audio`); all weights are one number."""
    try:
        model = builder.with_constant_weights(values)
        found = {"text": _passed(model, lambda: inputs_for(model))}
        kinds = list(modalities(model))
    except Exception as error:
        return {"text": Passed(brief(error), {})}
    return found | {kind: _passed(model, lambda kind=kind: inputs_of(model, kind)) for kind in kinds}  # type: ignore[misc]


def _passed(model: Any, inputs: Callable[[], dict[str, Any]]) -> Passed:
    takes: dict[str, tuple[int, ...]] = {}
    try:
        given = inputs()
        takes = {name: tuple(value.shape) for name, value in given.items() if name.endswith(_PROCESSED)}
        dry(model, given)
    except Exception as error:
        return Passed(brief(error), takes)
    return Passed("", takes)
