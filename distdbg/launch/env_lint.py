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
def _names() -> dict[str, dict[str, Any]]:
    text = (asset_dir("configs") / "env-names.yaml").read_text(encoding="utf-8")
    names: dict[str, dict[str, Any]] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return names


def lint(environ: Mapping[str, str]) -> list[str]:
    """Sentences for a person, in the order of the names."""
    relevant = {n: v for n, v in sorted(environ.items()) if n.startswith(_OURS_TO_KNOW)}
    notes = [note for name, value in relevant.items() for note in _one(name, value)]
    if "PYTORCH_ALLOC_CONF" in environ and "PYTORCH_CUDA_ALLOC_CONF" in environ:
        notes.append("PYTORCH_ALLOC_CONF and PYTORCH_CUDA_ALLOC_CONF are both set: torch reads the second; keep one")
    return notes


def _one(name: str, value: str) -> Iterator[str]:
    names = _names()
    known = names["nccl"] | names["torch"]
    if name in names["renamed"]:
        yield f"{name} is an old name; write {names['renamed'][name]}"
    elif name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        yield f"nothing is known to read {name}" + (f"; did you mean {near[0]}?" if near else "")
    elif (last := str(known[name]).partition("-")[2]) and name in names["nccl"]:
        yield f"{name} is read by NCCL up to {last} only"
    if name in names["never_blindly"] and value not in ("", "0" if "MONITORING" not in name else "1"):
        yield f"{name}={value}: {names['never_blindly'][name]}"
    if name == "GLOO_SOCKET_IFNAME" and re.search(r"[\^,=]", value):
        yield f"GLOO_SOCKET_IFNAME={value}: gloo takes names of interfaces that exist, without NCCL's ^ and ="
    if name == "NCCL_DEBUG" and value.upper() == "TRACE":
        yield "NCCL_DEBUG=TRACE slows every call down and does nothing in release builds; INFO says as much"
    if name == "TORCH_DISTRIBUTED_DEBUG" and value.upper() not in _DISTRIBUTED_DEBUG:
        yield f"TORCH_DISTRIBUTED_DEBUG={value}: torch raises at import; it is OFF, INFO or DETAIL"
    if name == "TORCH_DISTRIBUTED_DEBUG" and value.upper() == "DETAIL":
        yield "TORCH_DISTRIBUTED_DEBUG=DETAIL: with DDP over gloo torch 2.13 segfaults, and collectives get slow"
