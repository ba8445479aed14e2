"""Turn presets into variables, each with its origin; the user's own always win; secrets are masked.

A preset is configs/preset-NAME.yaml: for each variable its value, reason, cost, since which torch or NCCL, source.
A value may hold {rank}, {rank5}, {node}, {run}, {node_dir}, {rank_dir} or {nccl_log}: the agent fills it for each rank.

`lint` says what deserves a word in a user's own environment: old names, typing mistakes, values that do harm. It
changes nothing.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from distdbg.assets import asset_dir
from distdbg.errors import UsageError
from distdbg.masking import mask

_OURS_TO_KNOW = ("NCCL_", "TORCH_NCCL", "TORCH_FR_", "TORCH_INCLUDE_", "GLOO_", "TORCH_DIST")
_DISTRIBUTED_DEBUG = ("OFF", "INFO", "DETAIL")
#: What else in the inherited environment changes how a job runs; PET_ is torchrun's.
_SHOWN = (
    *("NCCL_", "GLOO_", "UCX_", "FI_"),
    *("TORCH_", "TORCHELASTIC_", "PYTORCH_", "PET_"),
    *("CUDA_", "CUBLAS_", "CUDNN_", "OMP_", "MKL_"),
)
_PLACEHOLDER = re.compile(r"\{(?:rank|rank5|node|run|node_dir|rank_dir|nccl_log)\}")


@cache
def _read(name: str) -> dict[str, Any]:
    text = (asset_dir("configs") / f"{name}.yaml").read_text(encoding="utf-8")
    return dict(yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def torch_facts() -> dict[str, dict[str, str]]:
    """What differs between versions of torch, by name; only `holds` compares versions."""
    return _read("torch-versions")


def holds(fact: str, torch_version: str | None) -> bool:
    """Return whether a fact holds in this version of torch; without one, whether it holds in the newest."""
    first, last = (_major_and_minor(torch_facts()[fact].get(bound, "")) for bound in ("first", "last"))
    version = (1 << 30,) if torch_version is None else _major_and_minor(torch_version)
    return first <= version and (not last or version <= last)


def _major_and_minor(version: str) -> tuple[int, ...]:
    """Empty, and so below all, if the text is not a version."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _newer_names() -> dict[str, str]:
    return {row["replaces"]: name for name, row in torch_facts().items() if "replaces" in row}


def lint(environ: Mapping[str, str], torch_version: str | None = None) -> list[str]:
    """Sentences for a person, in the order of the names. Without a version, as the newest torch reads them."""
    relevant = {n: v for n, v in sorted(environ.items()) if n.startswith(_OURS_TO_KNOW)}
    notes = [
        note
        for name, value in relevant.items()
        for note in (*_lint_name(name, torch_version), *_lint_value(name, value))
    ]
    if torch_version and holds("nccl-is-nccl2", torch_version) and relevant.get("TORCH_DIST_USE_NCCL2") != "0":
        notes += [
            f"{name}: nccl2, torch {torch_version}'s default backend, {note}; TORCH_DIST_USE_NCCL2=0 selects the older"
            for name in relevant
            if (note := nccl2_note(name))
        ]
    if "PYTORCH_ALLOC_CONF" in environ and "PYTORCH_CUDA_ALLOC_CONF" in environ:
        notes.append("PYTORCH_ALLOC_CONF and PYTORCH_CUDA_ALLOC_CONF are both set: torch reads the second; keep one")
    return notes


def _lint_name(name: str, torch_version: str | None) -> Iterator[str]:
    names = _read("env-names")
    known = names["nccl"] | names["torch"]
    if name in names["renamed"] or _is_replaced(name, torch_version):
        yield f"{name} is an old name; write {names['renamed'].get(name) or _newer_names()[name]}"
    elif name not in known and not any(
        name == other or (other.endswith("_") and name.startswith(other)) for other in names["elsewhere"]
    ):
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        yield f"nothing is known to read {name}" + (f"; did you mean {near[0]}?" if near else "")
    elif last := str(names["nccl"].get(name, "")).partition("-")[2]:
        yield f"{name} is read by NCCL up to {last} only"


def _is_replaced(name: str, torch_version: str | None) -> bool:
    """Whether this torch reads a newer name of the variable."""
    return name in _newer_names() and holds(_newer_names()[name], torch_version)


def nccl2_note(name: str) -> str:
    """Return what torch's backend nccl2 does with a variable that it does not read; "" for all other variables."""
    instead = _read("env-names")["not_nccl2"].get(name)
    return "" if instead is None else "does not read it" + (f": {instead}" if instead else "")


def _lint_value(name: str, value: str) -> Iterator[str]:
    harm = _read("env-names")["never_blindly"].get(name)
    harmless = ("", "1") if name == "TORCH_NCCL_ENABLE_MONITORING" else ("", "0")
    if harm and value.strip() not in harmless:
        yield f"{name}={value}: {harm}"
    if name == "GLOO_SOCKET_IFNAME" and re.search(r"[\^=]", value):
        yield f"GLOO_SOCKET_IFNAME={value}: gloo takes names of interfaces that exist, without NCCL's ^ and ="
    if name == "NCCL_DEBUG" and value.upper() == "TRACE":
        yield "NCCL_DEBUG=TRACE slows every call down and does nothing in release builds; INFO says as much"
    if name == "TORCH_DISTRIBUTED_DEBUG" and value.upper() not in _DISTRIBUTED_DEBUG:
        yield f"TORCH_DISTRIBUTED_DEBUG={value}: torch raises at import; it is OFF, INFO or DETAIL"
    if name == "TORCH_DISTRIBUTED_DEBUG" and value.upper() == "DETAIL":
        yield "TORCH_DISTRIBUTED_DEBUG=DETAIL: with DDP over gloo torch 2.13 segfaults, and collectives get slow"


def explain(name: str) -> list[str]:
    """What is known of a variable that no preset sets; empty for nothing."""
    names = _read("env-names")
    found: list[str] = []
    if new := names["renamed"].get(name):
        found.append(f"the old name of {new}")
    elif new := _newer_names().get(name):
        found.append(f"the old name of {new}, which torch reads since {torch_facts()[new]['first']}")
    elif name in names["nccl"]:
        first, _, last = str(names["nccl"][name]).partition("-")
        found.append(f"read by NCCL {first} to {last}" if last else f"read by NCCL {first} and later")
    elif name in names["torch"]:
        found.append("read by torch")
    if note := nccl2_note(name):
        found.append(f"torch's backend nccl2 {note}")
    if harm := names["never_blindly"].get(name):
        found.append(f"no preset sets it: {harm}")
    return found


def known_names() -> list[str]:
    """All known names, to suggest the nearest one for a mistyped name."""
    names = _read("env-names")
    return sorted({*names["nccl"], *names["torch"], *names["renamed"], *_newer_names()})


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
    near = difflib.get_close_matches(name, names, n=1)
    return f"there is no preset {name!r}; " + (
        f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
    )


@cache
def load_preset(name: str) -> Preset:
    """Raises UsageError with the nearest name for one that is not there."""
    if mistake := preset_mistake(name):
        raise UsageError(mistake, "`distdbg env` explains the presets that there are.")
    raw = _read(f"preset-{name}")
    variables = tuple(
        PresetVariable(key, **{k: str(v) for k, v in entry.items()}) for key, entry in raw["variables"].items()
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
    users = {name: Variable(name, value, "inherited") for name, value in inherited.items()}
    users |= {n: Variable(n, value, origins.get(f"env.{n}", "command line")) for n, value in own.items()}
    chosen: dict[str, Variable] = {}
    notes: list[str] = []
    for preset in (load_preset(name) for name in dict.fromkeys(["default", *presets])):
        for variable in (v for v in preset.variables if not _is_replaced(v.name, torch_version)):
            origin = f"preset {preset.name}"
            old = users.get(variable.replaces)
            if old is not None and variable.name not in users:
                value = mask(old.name, old.value)
                notes.append(f"{old.name}={value} is yours; {origin} would set {variable.name}={variable.value}")
            else:
                chosen[variable.name] = Variable(variable.name, variable.value, origin)
    for name, preset_one in list(chosen.items()):
        kept = users.get(name)
        if kept is not None:
            if kept.value != preset_one.value:
                notes.append(
                    f"{name}={mask(name, kept.value)} is yours; {preset_one.origin} would set {preset_one.value}"
                )
            chosen[name] = kept
    if "NCCL_DEBUG" in users and "NCCL_DEBUG_FILE" not in users:
        chosen.pop("NCCL_DEBUG_FILE", None)  # who asks NCCL to talk reads it on the terminal, as under torchrun
    chosen |= {name: users[name] for name in own}
    for name in inherited:
        if name.startswith(_SHOWN):
            chosen.setdefault(name, users[name])
    return [chosen[name] for name in sorted(chosen)], notes
