"""Change a model's config as a probe found that it must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distdbg.shrink.checkpoint.config_leaves import changed


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
