"""Presets become variables, each with its origin; the user's own always win; secrets are masked.

A preset is configs/preset-NAME.yaml: for each variable its value, reason, cost, since which torch or NCCL, source.
A value may hold {rank}, {rank5}, {node}, {run}, {node_dir}, {rank_dir} or {nccl_log}: the agent fills it for each rank.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from distdbg.assets import asset_dir
from distdbg.errors import UsageError
from distdbg.launch.plan.env_lint import version_of
from distdbg.masking import mask

#: What else in the inherited environment changes how a job runs; PET_ is torchrun's.
_SHOWN = (
    *("NCCL_", "GLOO_", "UCX_", "FI_"),
    *("TORCH_", "TORCHELASTIC_", "PYTORCH_", "PET_"),
    *("CUDA_", "CUBLAS_", "CUDNN_", "OMP_", "MKL_"),
)
_PLACEHOLDER = re.compile(r"\{(?:rank|rank5|node|run|node_dir|rank_dir|nccl_log)\}")


@dataclass(frozen=True)
class Variable:
    """One variable for the ranks. `origin` is preset NAME, job file …, command line, inherited or distdbg."""

    name: str
    value: str
    origin: str

    @property
    def per_rank(self) -> bool:
        """What the user wrote is never filled in: a brace of his is a brace."""
        return self.origin.startswith("preset ") and bool(_PLACEHOLDER.search(self.value))


@dataclass(frozen=True)
class PresetVariable:
    """One entry of a preset file."""

    name: str
    value: str
    reason: str
    cost: str
    since: str
    source: str
    replaces: str = ""
    #: the first torch that warns of this name; it is left out from there on
    before: str = ""


@dataclass(frozen=True)
class Preset:
    name: str
    summary: str
    variables: tuple[PresetVariable, ...]


def preset_names() -> list[str]:
    return sorted(p.stem.removeprefix("preset-") for p in asset_dir("configs").glob("preset-*.yaml"))


def preset_mistake(name: str) -> str:
    """A sentence with the nearest preset where there is none of this name, else nothing."""
    names = preset_names()
    if name in names:
        return ""
    import difflib

    near = difflib.get_close_matches(name, names, n=1)
    return f"there is no preset {name!r}; " + (
        f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
    )


@cache
def load_preset(name: str) -> Preset:
    """Raises UsageError with the nearest name for one that is not there."""
    if mistake := preset_mistake(name):
        raise UsageError(mistake, "`distdbg env` explains the presets that there are.")
    path = asset_dir("configs") / f"preset-{name}.yaml"
    raw: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    variables = tuple(
        PresetVariable(key, str(entry.pop("value")), **{k: str(v) for k, v in entry.items()})
        for key, entry in raw["variables"].items()
    )
    return Preset(name, str(raw["summary"]), variables)


def resolve(
    presets: Sequence[str],
    own: Mapping[str, str],
    origins: Mapping[str, str],
    inherited: Mapping[str, str],
    torch_version: str | None = None,
) -> tuple[list[Variable], list[str]]:
    """Variables to set for the ranks, later presets over earlier ones, and notes on what the user's own kept out.

    `origins` says under `env.NAME` where one of `own` was written; without it that is the command line. An old name of
    the user's keeps out the new one, which torch would read first.

    Of what is inherited, that which torch, NCCL, gloo, CUDA and torchrun read is shown, too, with its origin.
    """
    chosen: dict[str, Variable] = {}
    notes: list[str] = []
    for preset in (load_preset(name) for name in dict.fromkeys(["default", *presets])):
        for variable in (v for v in preset.variables if not _outdated(v, torch_version)):
            origin = f"preset {preset.name}"
            old = _users(variable.replaces, own, origins, inherited)
            if old is not None and _users(variable.name, own, origins, inherited) is None:
                value = mask(old.name, old.value)
                notes.append(f"{old.name}={value} is yours; {origin} would set {variable.name}={variable.value}")
            else:
                chosen[variable.name] = Variable(variable.name, variable.value, origin)
    for name, preset_one in list(chosen.items()):
        kept = _users(name, own, origins, inherited)
        if kept is not None:
            if kept.value != preset_one.value:
                notes.append(
                    f"{name}={mask(name, kept.value)} is yours; {preset_one.origin} would set {preset_one.value}"
                )
            chosen[name] = kept
    talk, file = (_users(name, own, origins, inherited) for name in ("NCCL_DEBUG", "NCCL_DEBUG_FILE"))
    if talk is not None and file is None:  # who asks NCCL to talk reads it on the terminal, as under torchrun
        chosen.pop("NCCL_DEBUG_FILE", None)
    for name, value in own.items():
        chosen[name] = Variable(name, value, _origin(name, origins))
    for name, value in inherited.items():
        if name.startswith(_SHOWN):
            chosen.setdefault(name, Variable(name, value, "inherited"))
    return [chosen[name] for name in sorted(chosen)], notes


def _outdated(variable: PresetVariable, torch_version: str | None) -> bool:
    """Newer torch prints a warning on standard error for its old names: a log byte that the script did not write."""
    if not variable.before:
        return False
    return torch_version is None or version_of(torch_version) >= version_of(variable.before)


def _origin(name: str, origins: Mapping[str, str]) -> str:
    return origins.get(f"env.{name}", "command line")


def _users(
    name: str, own: Mapping[str, str], origins: Mapping[str, str], inherited: Mapping[str, str]
) -> Variable | None:
    if name in own:
        return Variable(name, own[name], _origin(name, origins))
    if name in inherited:
        return Variable(name, inherited[name], "inherited")
    return None
