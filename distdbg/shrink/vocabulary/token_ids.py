"""Find the ids of tokens in a model's configs, and give them their new numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from distdbg.shrink.checkpoint.config_leaves import Path

_ID = re.compile(r"(.*_)?token_(id|ids|index|idx)")
#: lists of ids that `generate` never chooses: what was cut needs no ban
_BANNED = ("suppress_tokens", "begin_suppress_tokens")
#: token -> id, in generation_config.json of Whisper
_BY_TOKEN = ("lang_to_id", "task_to_id")


def is_token_id(path: Path) -> bool:
    return _ID.fullmatch(str(path[-1])) is not None


def named_ids(config: Mapping[str, Any], rows: int) -> set[int]:
    """The ids of a vocabulary of `rows` tokens that a config names: they must stay."""
    return {one for path, value in _leaves(config, rows, ()) if is_token_id(path) for one in _numbers(value, rows)}


def renumbered(config: Mapping[str, Any], rows: int, new: Mapping[int, int]) -> dict[Path, Any]:
    """Path -> value with the ids of `new`. An id that did not stay is left out of a list, and becomes None alone."""
    edits: dict[Path, Any] = {}
    for path, value in _leaves(config, rows, ()):
        if isinstance(value, Mapping):
            edits[path] = {token: new[i] for token, i in value.items() if i in new}
        elif isinstance(value, list):
            edits[path] = [new.get(i, i) for i in value if i in new or not _inside(i, rows)]
        elif _inside(value, rows):
            edits[path] = new.get(value)
    return edits


def _leaves(config: Mapping[str, Any], rows: int, at: Path) -> Iterator[tuple[Path, Any]]:
    """A nested config with a vocabulary of another size has ids of its own."""
    if config.get("vocab_size", rows) != rows and at:
        return
    for key, value in config.items():
        path = (*at, key)
        if key in _BY_TOKEN and isinstance(value, Mapping):
            yield path, value
        elif isinstance(value, Mapping):
            yield from _leaves(value, rows, path)
        elif (is_token_id(path) or key in _BANNED) and _numbers(value, rows):
            yield path, value


def _numbers(value: Any, rows: int) -> list[int]:
    values = value if isinstance(value, list) else [value]
    return [one for one in values if _inside(one, rows)]


def _inside(value: Any, rows: int) -> bool:
    return type(value) is int and 0 <= value < rows
