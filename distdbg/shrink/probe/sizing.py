"""Make a model of a size that has a name: `tiny`, or a number of parameters. Layers, experts and width together.

As little as possible is changed: where the layers that are kept are few enough parameters already, nothing else is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from distdbg.errors import Refused, UsageError
from distdbg.shrink.checkpoint.config_leaves import Path, changed
from distdbg.shrink.probe.building import Anatomy, Builder, brief
from distdbg.shrink.probe.narrowing import (
    Narrowed,
    fewer_experts,
    fewer_rows,
    less_width,
    vocabulary_of,
    why_it_does_not_run,
)
from distdbg.shrink.probe.shrinking import WantedLayers, shrink
from distdbg.shrink.vocabulary.selecting import CannotCutError, least
from distdbg.shrink.vocabulary.token_ids import named_ids
from distdbg.shrink.vocabulary.tokenizer_files import TokenizerFiles

TINY = "tiny"
#: widths of a tiny model, of which the first that runs is taken: a few heads fit in
_TINY_WIDTHS = (64, 128, 256, 512)
_FACTORS = (3 / 4, 1 / 2, 3 / 8, 1 / 4, 3 / 16, 1 / 8, 1 / 16, 1 / 32, 1 / 64)
_TINY_EXPERTS = (4, 8, 16, 32)
#: tokens of a tiny model, or as many as its tokenizer needs
_TINY_TOKENS = 1024
_UNITS = {"K": 10**3, "M": 10**6, "B": 10**9}
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([KMB])", re.IGNORECASE)


def most_parameters(size: str) -> int | None:
    """`100M` -> 100,000,000; None for `tiny`. Raises UsageError for anything else."""
    if size == TINY:
        return None
    found = _NUMBER.fullmatch(size)
    if found is None:
        raise UsageError(f"--size {size}: it is no size", "Write tiny, or a number of parameters such as 100M or 1.5B.")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def sized(
    builder: Builder, size: str, layers: WantedLayers, given: Mapping[str, Any], tokenizer: TokenizerFiles | None = None
) -> list[Narrowed]:
    """The changes that give this size, each already in `builder.full`. `given`: what the user has set (`experts`).

    Raises Refused where the narrowest model that runs has more parameters.
    """
    most = most_parameters(size)
    found: list[Narrowed] = []
    if most is not None and parameters(_small(builder, layers).whole) <= most:
        return found
    if given.get("experts") is None:
        found += _experts(builder)
    if most is None and tokenizer is not None and given.get("vocab") is None:
        found += _vocabulary(builder, tokenizer)
    factors = list(_factors(builder)) if most is None else _FACTORS
    if not factors:  # it is tiny already
        return found
    reached = 0
    for factor in factors:
        narrower = _narrower(_small(builder, layers), factor)
        if isinstance(narrower, Exception):
            continue
        there = Builder(builder.config(changed(builder.full, narrower.edits)), builder.model_class, builder.trust)
        reached = parameters(_small(there, layers).whole)
        if most is None or reached <= most:
            builder.full = there.full
            return [*found, narrower]
    what = (
        f"the smallest model found has {reached:,} parameters" if reached else "no width was found with which it runs"
    )
    raise Refused(f"--size {size}: {what}", "Give a larger size, or --vocab N: the vocabulary may be most of it.")


def parameters(anatomy: Anatomy) -> int:
    """Tied ones count once."""
    again = {name for alike in anatomy.tied for name in alike[1:]}
    return sum(prod(anatomy.tensors[name][0]) for name in anatomy.parameters - again)


def least_of(path: Path, value: int) -> int:
    """What a size is not made smaller than: with one head, or an odd part of one, nothing is left to be wrong."""
    name = str(path[-1])
    if "head" in name and not re.search("dim|size", name):
        return min(value, 2 if "key_value" in name or "kv" in name else 4)
    return min(value, 8)


def _small(builder: Builder, layers: WantedLayers) -> Builder:
    """The model with the layers that will be kept: it is built in a fraction of the time."""
    edits = shrink(builder, layers).edits
    return Builder(builder.config(changed(builder.full, edits)), builder.model_class, builder.trust)


def _narrower(small: Builder, factor: float) -> Narrowed | Exception:
    try:
        return less_width(small, factor, least_of)
    except Refused as error:
        return error


def _factors(builder: Builder) -> Iterator[float]:
    """From the width of the embedding to those of a tiny model."""
    try:
        width = int(builder.model(builder.full).get_input_embeddings().weight.shape[1])
    except Exception as error:
        raise Refused(f"the model has no width: no input embedding ({brief(error)})", "Use --width F.") from None
    yield from (narrow / width for narrow in _TINY_WIDTHS if narrow < width)


def _experts(builder: Builder) -> list[Narrowed]:
    """As few as the model runs with, of a model that has some."""
    for count in _TINY_EXPERTS:
        try:
            one = fewer_experts(builder, count)
        except (Refused, UsageError):
            continue
        if not why_it_does_not_run(builder, one.edits):
            builder.full = changed(builder.full, one.edits)
            return [one]
    return []


def _vocabulary(builder: Builder, tokenizer: TokenizerFiles) -> list[Narrowed]:
    """As few tokens as a tokenizer needs that can be cut; the vocabulary stays whole with any other."""
    try:
        there = vocabulary_of(builder)
        count = max(_TINY_TOKENS, least(tokenizer, named_ids(builder.full, there), there))
        one = fewer_rows(builder, count, tokenizer)
    except (Refused, UsageError, CannotCutError):
        return []
    if why_it_does_not_run(builder, one.edits):
        return []
    builder.full = changed(builder.full, one.edits)
    return [one]
