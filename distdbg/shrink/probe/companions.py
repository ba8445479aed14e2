"""Fields of transformers' own conventions that name layers and must follow when some are taken away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distdbg.shrink.checkpoint.config_leaves import Config, Path, value_at


def companions(config: Config, section: Path, layers: int, keep: Sequence[int]) -> dict[Path, Any]:
    """Edits beside a leaf that counts `layers`, of which `keep` stay."""
    return _per_layer_configs(config, section, layers, keep) | _stage_names(config, section, layers, keep)


def is_stage_list(path: Path) -> bool:
    return str(path[-1]) in ("stage_names", "out_features", "out_indices")


def _per_layer_configs(config: Config, section: Path, layers: int, keep: Sequence[int]) -> dict[Path, Any]:
    """`per_layer_config` gives settings by layer number."""
    beside = value_at(config, section).get("per_layer_config")
    if not isinstance(beside, dict) or not all(str(k).isdecimal() for k in beside):
        return {}
    settings = {int(k): v for k, v in beside.items()}
    if not settings or max(settings) >= layers:
        return {}
    kept = {str(new): settings[old] for new, old in enumerate(keep) if old in settings}
    return {(*section, "per_layer_config"): kept}


def _stage_names(config: Config, section: Path, layers: int, keep: Sequence[int]) -> dict[Path, Any]:
    """A backbone's stages are its stem and its layers, and some are its outputs (transformers' BackboneConfigMixin).

    An output at a layer that is not kept moves to the nearest kept one before it.
    """
    beside = value_at(config, section)
    names = beside.get("stage_names")
    if not isinstance(names, list) or len(names) != layers + 1:
        return {}
    new_names = names[: len(keep) + 1]
    outputs = [i % len(names) for i in beside.get("out_indices") or [] if type(i) is int]
    moved = sorted({sum(1 for k in keep if k < i) for i in outputs})
    edits: dict[Path, Any] = {(*section, "stage_names"): new_names}
    if outputs:
        edits |= {(*section, "out_indices"): moved, (*section, "out_features"): [new_names[i] for i in moved]}
    return edits
