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

MASK = "********"
_SECRET_NAME = re.compile(
    r"token|secret|passw|api[-_]?key|access[-_]?key|private|credential|auth|cookie|signature", re.I
)
_SECRET_VALUE = re.compile(
    r"^(?:hf_|ghp_|gho_|github_pat_|glpat-|sk-|xox[abp]-|AKIA|ASIA|eyJ[\w-]+\.)[\w.\-]{8,}$"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
)
_URL_CREDENTIALS = re.compile(r"(?P<head>[a-z][a-z0-9+.\-]*://)[^\s/@:]*:?[^\s/@]*@", re.I)
#: These hold words that look secret and are none.
_NOT_SECRET = {"SSH_AUTH_SOCK", "XAUTHORITY", "TOKENIZERS_PARALLELISM", "TORCH_NCCL_USE_COMM_NONBLOCKING"}
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


@cache
def load_preset(name: str) -> Preset:
    """Raises UsageError with the nearest name for one that is not there."""
    path = asset_dir("configs") / f"preset-{name}.yaml"
    if not path.is_file():
        import difflib

        near = difflib.get_close_matches(name, preset_names(), n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Presets are {', '.join(preset_names())}."
        raise UsageError(f"there is no preset {name!r}", hint)
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

    `origins` says under `env.NAME` where one of `own` was written; without it that is the command line.

    What is inherited is not repeated unless a preset names it too: then it is shown, with its origin.
    """
    chosen: dict[str, Variable] = {}
    notes: list[str] = []
    for preset in (load_preset(name) for name in dict.fromkeys(["default", *presets])):
        for variable in (v for v in preset.variables if not _outdated(v, torch_version)):
            chosen[variable.name] = Variable(variable.name, variable.value, f"preset {preset.name}")
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
    return [chosen[name] for name in sorted(chosen)], notes


def _outdated(variable: PresetVariable, torch_version: str | None) -> bool:
    """Newer torch prints a warning on standard error for its old names: a log byte that the script did not write."""
    return bool(variable.before) and (torch_version is None or _version(torch_version) >= _version(variable.before))


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


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


def mask(name: str, value: str) -> str:
    """The value, or asterisks where name or value look like a secret; of a URL only the credentials go."""
    if name not in _NOT_SECRET and _SECRET_NAME.search(name) and not value.isdigit():
        return MASK
    if _SECRET_VALUE.search(value):
        return MASK
    return _URL_CREDENTIALS.sub(rf"\g<head>{MASK}@", value)


def mask_argv(argv: Sequence[str]) -> list[str]:
    """Arguments as `--token=…`, `--token …` and NAME=VALUE lose their secret part."""
    masked: list[str] = []
    hide_next = False
    for word in argv:
        name, equals, value = word.partition("=")
        if hide_next and not word.startswith("-"):
            masked.append(MASK)
        elif equals:
            masked.append(f"{name}={mask(name, value)}")
        else:
            masked.append(mask("", word))
        hide_next = not equals and word.startswith("-") and bool(_SECRET_NAME.search(word))
    return masked
