"""Make a model of a size that has a name: `tiny`, or a number of parameters. Layers, vocabulary, experts and width.

As little as possible is changed: where the layers that are kept are few enough parameters already, nothing else is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from distdbg.errors import Refused, UsageError
from distdbg.shrink.checkpoint.config_leaves import Path, changed
from distdbg.shrink.probe.building import Anatomy, Builder
from distdbg.shrink.probe.controls import layer_lists
from distdbg.shrink.probe.narrowing import (
    Narrowed,
    embedding_of,
    fewer_experts,
    fewer_rows,
    less_width,
    vocabulary_of,
    why_it_does_not_run,
    with_kept_layers,
)
from distdbg.shrink.probe.shrinking import WantedLayers
from distdbg.shrink.vocabulary.selecting import CannotCutError, least
from distdbg.shrink.vocabulary.token_ids import named_ids
from distdbg.shrink.vocabulary.tokenizer_files import TokenizerFiles

TINY = "tiny"
#: widths of a tiny model, of which the first that runs is taken: a few heads fit in, in some only three (Swin)
_TINY_WIDTHS = (64, 96, 128, 192, 256, 384, 512)
_FACTORS = (3 / 4, 1 / 2, 3 / 8, 1 / 4, 3 / 16, 1 / 8, 1 / 16, 1 / 32, 1 / 64)
_TINY_EXPERTS = (4, 8, 16, 32)
#: tokens of a tiny model, or as many as its tokenizer needs
_TINY_TOKENS = 1024
#: a vocabulary is cut where at most this part of it stays: without a tokenizer, ids that the config names are its last
_WORTH_IT = 3 / 4
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
    builder: Builder,
    size: str,
    layers: WantedLayers,
    given: Mapping[str, Any],
    tokenizer: TokenizerFiles | None = None,
    *,
    uncut: bool = False,
) -> list[Narrowed]:
    """The changes that give this size, each already in `builder.full`. `given`: what the user has set (`experts`).
    `uncut`: the vocabulary stays whole, as its tokenizer is of a form that cannot be cut.

    Raises Refused where the narrowest model that runs has more parameters.
    """
    most = most_parameters(size)
    found: list[Narrowed] = []

    def fits() -> bool:
        return most is not None and parameters(with_kept_layers(builder, layers).whole) <= most

    if fits():
        return found
    if given.get("vocab") is None and not uncut:
        found += _vocabulary(builder, tokenizer, most, layers)
        if found and fits():
            return found
    if given.get("experts") is None and (fewer := _experts(builder, layers)):
        found += fewer
        if fits():
            return found
    factors = list(_factors(builder)) if most is None else _FACTORS
    if not factors:  # it is tiny already
        return found
    reached = 0
    for factor in factors:
        narrower = _narrower(with_kept_layers(builder, layers), factor)
        if isinstance(narrower, Exception):
            continue
        there = Builder(builder.config(changed(builder.full, narrower.edits)), builder.model_class, builder.trust)
        reached = parameters(with_kept_layers(there, layers).whole)
        if most is None or reached <= most:
            builder.full = there.full
            return [*found, narrower]
    what = (
        f"the smallest model found has {reached:,} parameters" if reached else "no width was found with which it runs"
    )
    whole = uncut and given.get("vocab") is None
    raise Refused(
        f"--size {size}: {what}" + (", with the vocabulary whole: its tokenizer cannot be cut" if whole else ""),
        "Give a larger size" + (", or --vocab N." if whole else "."),
    )


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


def _narrower(small: Builder, factor: float) -> Narrowed | Exception:
    try:
        return less_width(small, factor, least_of)
    except Refused as error:
        return error


def _factors(builder: Builder) -> Iterator[float]:
    """From the width of the embedding, or else the size that the layers have most of, to those of a tiny model."""
    shape, full = embedding_of(builder), builder.whole
    inside = tuple(f"{path}." for path in layer_lists(full))
    sizes = Counter(n for name in full.parameters if name.startswith(inside) for n in full.tensors[name][0])
    width = shape[1] if shape else max(sizes, key=lambda n: sizes[n], default=0)
    yield from (narrow / width for narrow in _TINY_WIDTHS if narrow < width)


def _experts(builder: Builder, layers: WantedLayers) -> list[Narrowed]:
    """As few as the model runs with, of a model that has some."""
    for count in _TINY_EXPERTS:
        try:
            one = fewer_experts(builder, count)
        except (Refused, UsageError):
            continue
        if not why_it_does_not_run(builder, one.edits, layers):
            builder.full = changed(builder.full, one.edits)
            return [one]
    return []


def _vocabulary(
    builder: Builder, tokenizer: TokenizerFiles | None, most: int | None, layers: WantedLayers
) -> list[Narrowed]:
    """The tokens of a tiny model; of another, as many as are half of it, where there are more. At least those that a
    tokenizer needs; nothing where it cannot be cut, hardly becomes smaller, or the model does not run."""
    try:
        there = vocabulary_of(builder)
        named = named_ids(builder.full, there)
        needed = max(named, default=0) + 1 if tokenizer is None else least(tokenizer, named, there)
        count = _TINY_TOKENS if most is None else most // 2 // _parameters_a_token(builder, there) // 64 * 64
        if max(count, needed) > there * _WORTH_IT:
            return []
        one = fewer_rows(builder, max(count, needed, 1), tokenizer)
    except (Refused, UsageError, CannotCutError):
        return []
    if why_it_does_not_run(builder, one.edits, layers):
        return []
    builder.full = changed(builder.full, one.edits)
    return [one]


def _parameters_a_token(builder: Builder, rows: int) -> int:
    """Of the embedding, and of a head that is not tied to it."""
    full = builder.whole
    again = {name for alike in full.tied for name in alike[1:]}
    shapes = [full.tensors[name][0] for name in full.parameters - again]
    return sum(prod(shape) // rows for shape in shapes if rows in shape)
