"""A config as a tree: leaves by path, and copies with some of them changed."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

#: keys and list positions from the top of a config to a value
Path = tuple[str | int, ...]
Config = dict[str, Any]
#: a list of this many numbers may hold counts (`depths`)
_LONGEST_LIST_OF_COUNTS = 16


def integers(config: Mapping[str, Any], at: Path = ()) -> Iterator[tuple[Path, int]]:
    """Every integer, those of nested configs and of short lists too; truth values are none."""
    for key, value in config.items():
        if type(value) is int:
            yield (*at, key), value
        elif isinstance(value, Mapping):
            yield from integers(value, (*at, key))
        elif isinstance(value, list) and len(value) <= _LONGEST_LIST_OF_COUNTS:
            yield from (((*at, key, i), v) for i, v in enumerate(value) if type(v) is int)


def sequences(config: Mapping[str, Any], section: Path, length: int) -> Iterator[Path]:
    """Lists and strings with this many entries that are directly in a section of the config; lists of runs, too."""
    for key, value in value_at(config, section).items():
        if isinstance(value, str):
            fits = len(value) == length and _is_pattern(value)
        else:
            fits = isinstance(value, list) and (len(value) == length or _length_of_runs(value) == length)
        if fits:
            yield (*section, key)


def _length_of_runs(value: Sequence[Any]) -> int:
    """How many entries a list of [entries, how often] stands for (`[[["global", "local"], 12]]`); 0 if it is none."""
    pairs = [one for one in value if isinstance(one, list) and len(one) == 2 and isinstance(one[0], list)]
    if len(pairs) < len(value) or not all(type(times) is int and times > 0 for _, times in pairs):
        return 0
    return sum(len(entries) * times for entries, times in pairs)


def entries(value: Sequence[Any], length: int) -> Sequence[Any]:
    """Of one of `sequences`: what each layer has."""
    return value if len(value) == length else [one for part, times in value for one in part * times]


def _is_pattern(text: str) -> bool:
    """One letter a layer; a word of the same length has more different ones."""
    return len(text) > 3 and len(set(text)) <= min(6, len(text) // 2)


def index_lists(config: Mapping[str, Any], section: Path, length: int) -> Iterator[Path]:
    """Lists that could name some of `length` layers: rising or falling numbers below it."""
    for key, value in value_at(config, section).items():
        if not isinstance(value, list) or not value or len(value) > length:
            continue
        if not all(type(v) is int and 0 <= v < length for v in value):
            continue
        if all(a < b for a, b in itertools.pairwise(value)) or all(a > b for a, b in itertools.pairwise(value)):
            yield (*section, key)


def counts_lists(config: Mapping[str, Any], total: int) -> Iterator[Path]:
    """Lists that could count `total` layers stage by stage (`[1, 2, 7, 2]`), of nested configs too."""
    for section in sections(config):
        for key, value in value_at(config, section).items():
            if not isinstance(value, list) or not 1 < len(value) <= _LONGEST_LIST_OF_COUNTS:
                continue
            if all(type(v) is int and v > 0 for v in value) and sum(value) == total:
                yield (*section, key)


def sections(config: Mapping[str, Any], at: Path = ()) -> Iterator[Path]:
    """The config itself and every config nested in it."""
    yield at
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from sections(value, (*at, key))


def section_of(path: Path) -> Path:
    """The config that holds a leaf: `("vision_config", "depths", 2)` -> `("vision_config",)`."""
    return path[:-2] if path and isinstance(path[-1], int) else path[:-1]


def value_at(config: Any, path: Path) -> Any:
    for key in path:
        config = config[key]
    return config


def changed(config: Config, edits: Mapping[Path, Any]) -> Config:
    """A copy with these leaves set; sections that are absent (None too) are made."""
    new = copy.deepcopy(config)
    for path, value in edits.items():
        inner: Any = new
        for key in path[:-1]:
            if isinstance(key, str) and not isinstance(inner.get(key), dict | list):
                inner[key] = {}
            inner = inner[key]
        inner[path[-1]] = copy.deepcopy(value)
    return new


def picked(value: Sequence[Any], length: int, layers: Sequence[int]) -> list[Any] | str:
    """One of `sequences`, of its own form, with an entry for each kept layer."""
    every = entries(value, length)
    kept = [every[i] for i in layers]
    if isinstance(value, str):
        return "".join(kept)
    return kept if len(value) == length else [[kept, 1]]


def dotted(path: Path) -> str:
    """`text_config.depths[2]`, as a person would write it."""
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".")


# -- a config changed as a probe found that it must be ----------------------------------------------------------------


def edited(config: dict[str, Any], edits: Sequence[Any], probe: Mapping[str, Any]) -> dict[str, Any]:
    """The config with the probe's edits, and the same for a leaf's other name where the config uses that.

    An entry of a list that the config does not write out cannot be set alone: the probe knows the whole list.
    """
    other = {new: old for old, new in probe["aliases"].items()}
    wanted = {tuple(path): value for path, value in edits}
    same = {(other[path[0]],): value for path, value in wanted.items() if len(path) == 1 and path[0] in other}
    return changed(config, wanted | {path: value for path, value in same.items() if path[0] in config})


def narrower(config: dict[str, Any], probe: Mapping[str, Any]) -> dict[str, Any]:
    """The source's config with fewer experts, rows, width: what the small model's layers are compared with."""
    for narrowed in probe["narrowed"]:
        config = edited(config, narrowed["edits"], probe)
    return config
