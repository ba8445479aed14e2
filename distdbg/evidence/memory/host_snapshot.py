"""Read a rank's host snapshot (`*.host.json.gz`, worker/memory/host.py) as plain records; the rest is left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distdbg.evidence.jsonl import dicts, integer, text

SCHEMA = "distdbg.host-memory/1"


@dataclass(frozen=True)
class TensorGroup:
    """Tensors of one kind and shape; `bytes` counts each storage once, on any device."""

    kind: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    count: int
    bytes: int
    #: of the first of them: its name in the model, or the variable that holds it, and where that is
    name: str = ""
    file: str = ""


@dataclass(frozen=True)
class HostSnapshot:
    path: str
    rank: int | None
    step: int | None
    why: str
    figures: Mapping[str, int]
    groups: tuple[TensorGroup, ...]
    tensors: int
    with_graph: int
    missing: str


def host_snapshot(value: Mapping[str, Any], path: str) -> HostSnapshot | None:
    """None for what is not of this schema."""
    if value.get("schema") != SCHEMA:
        return None
    figures, tensors = (value[n] if isinstance(value.get(n), dict) else {} for n in ("figures", "tensors"))
    held = {_key(entry): entry for entry in dicts(value.get("largest"))}
    return HostSnapshot(
        path=path,
        rank=integer(value, "rank"),
        step=integer(value, "step"),
        why=text(value, "why"),
        figures={name: size for name in figures if (size := integer(figures, name)) is not None},
        groups=tuple(_group(entry, held.get(_key(entry), {})) for entry in dicts(value.get("groups"))),
        tensors=integer(tensors, "count") or 0,
        with_graph=integer(tensors, "with_graph") or 0,
        missing=text(value, "missing"),
    )


def _key(entry: Mapping[str, Any]) -> tuple[str, str, str]:
    return text(entry, "kind"), str(entry.get("shape")), text(entry, "dtype")


def _group(entry: Mapping[str, Any], held: Mapping[str, Any]) -> TensorGroup:
    shape, sizes = entry.get("shape"), entry.get("bytes")
    return TensorGroup(
        kind=text(entry, "kind"),
        shape=tuple(n for n in shape if isinstance(n, int)) if isinstance(shape, list) else (),
        dtype=text(entry, "dtype").removeprefix("torch."),
        device=text(entry, "device"),
        count=integer(entry, "count") or 0,
        bytes=sum(integer(sizes, name) or 0 for name in sizes) if isinstance(sizes, dict) else 0,
        name=text(entry, "name") or text(held, "name"),
        file=text(held, "file"),
    )
