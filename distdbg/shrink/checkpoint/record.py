"""`shrink.json` (schema distdbg.shrink/1): what was kept, renumbered, sliced, dropped, warned of and verified."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distdbg.shrink.checkpoint.slicing import Piece

SCHEMA = "distdbg.shrink/1"


def record(
    probe: dict[str, Any], taken: Sequence[Piece], dropped: Sequence[str], folder: Path, *, read: int, random: bool
) -> dict[str, Any]:
    """`bytes_read` counts what came from the source; `bytes_written` everything in `folder`."""
    written = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file() and not f.name.startswith("."))
    pickled = probe.get("pickled", {})
    return {
        "schema": SCHEMA,
        "model_type": probe["model_type"],
        "weights": "random" if random else "sliced",
        "stacks": probe["stacks"],
        "narrowed": [{k: one[k] for k in ("axis", "from", "to", "edits")} for one in probe["narrowed"]],
        "renamed": {p.source.name: p.name for p in taken if p.name != p.source.name} | pickled.get("renamed", {}),
        "sliced": {
            p.name: {"from": list(p.source.shape), "to": list(p.shape)} for p in taken if p.shape != p.source.shape
        }
        | pickled.get("sliced", {}),
        "dropped": [*dropped, *pickled.get("dropped", ())],
        "warnings": list(probe["warnings"]),
        "verified": {},
        "bytes_read": read,
        "bytes_written": written,
    }
