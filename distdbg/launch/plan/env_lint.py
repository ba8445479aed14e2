"""What deserves a word in a user's own environment: old names, slips of the pen, values that do harm. Pure.

Nothing is changed: the user's variables always win.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import yaml

from distdbg.assets import asset_dir

_OURS_TO_KNOW = ("NCCL_", "TORCH_NCCL_", "TORCH_FR_", "GLOO_", "TORCH_DISTRIBUTED_")
_DISTRIBUTED_DEBUG = ("OFF", "INFO", "DETAIL")


@cache
def _names() -> dict[str, Any]:
    text = (asset_dir("configs") / "env-names.yaml").read_text(encoding="utf-8")
    names: dict[str, Any] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return names


def lint(environ: Mapping[str, str], torch_version: str | None = None) -> list[str]:
    """Sentences for a person, in the order of the names. Without a version, as the newest torch reads them."""
    relevant = {n: v for n, v in sorted(environ.items()) if n.startswith(_OURS_TO_KNOW)}
    notes = [note for name, value in relevant.items() for note in (*_name(name, torch_version), *_value(name, value))]
    if "PYTORCH_ALLOC_CONF" in environ and "PYTORCH_CUDA_ALLOC_CONF" in environ:
        notes.append("PYTORCH_ALLOC_CONF and PYTORCH_CUDA_ALLOC_CONF are both set: torch reads the second; keep one")
    return notes


def _name(name: str, torch_version: str | None) -> Iterator[str]:
    names = _names()
    known = names["nccl"] | names["torch"]
    new, _, since = str(names["renamed"].get(name, "")).partition(" since ")
    if new:
        if torch_version is None or version_of(torch_version) >= version_of(since):
            yield f"{name} is an old name; write {new}"
    elif name not in known and not _is_elsewhere(name):
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        yield f"nothing is known to read {name}" + (f"; did you mean {near[0]}?" if near else "")
    elif last := str(names["nccl"].get(name, "")).partition("-")[2]:
        yield f"{name} is read by NCCL up to {last} only"


def _is_elsewhere(name: str) -> bool:
    return any(name == other or (other.endswith("_") and name.startswith(other)) for other in _names()["elsewhere"])


def version_of(text: str) -> tuple[int, ...]:
    """Major and minor number; empty, and so below all, for what is no version."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


def _value(name: str, value: str) -> Iterator[str]:
    harm = _names()["never_blindly"].get(name)
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
    names = _names()
    found: list[str] = []
    if new := str(names["renamed"].get(name, "")):
        found.append(f"the old name of {new.replace(' since ', ', which torch reads since ')}")
    elif name in names["nccl"]:
        first, _, last = str(names["nccl"][name]).partition("-")
        found.append(f"read by NCCL {first} to {last}" if last else f"read by NCCL {first} and later")
    elif name in names["torch"]:
        found.append("read by torch")
    if harm := names["never_blindly"].get(name):
        found.append(f"no preset sets it: {harm}")
    return found


def known_names() -> list[str]:
    """For the nearest one to a slip of the pen."""
    names = _names()
    return sorted({*names["nccl"], *names["torch"], *names["renamed"]})
