"""Send the results of a node's probe as short lines, which may be mixed with banners and other nodes' lines.

Slurm cuts lines at 1 KiB and mixes those of its tasks; a login shell may print a greeting.

    distdbg-probe NODE KIND 1/2 <base64 of compressed JSON>
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator
from typing import Any

from distdbg.evidence import jsonl

_CHUNK = 600
_LINE = re.compile(r"distdbg-probe (\S{1,255}) ([a-z]+) (\d{1,5})/(\d{1,5}) ([A-Za-z0-9+/=]+)\s*$")
_MOST_BYTES = 16 << 20


def pack(node: str, kind: str, value: dict[str, Any]) -> Iterator[str]:
    """Lines without their newline."""
    text = base64.b64encode(zlib.compress(json.dumps(value).encode())).decode()
    chunks = [text[at : at + _CHUNK] for at in range(0, len(text), _CHUNK)]
    for number, chunk in enumerate(chunks, 1):
        yield f"distdbg-probe {node} {kind} {number}/{len(chunks)} {chunk}"


class ProbeUnpacker:
    """`take(line)` gives (node, kind, value) with the last line of each; what is not ours is kept in `noise`."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, str], dict[int, str]] = {}
        self.noise: list[str] = []

    def take(self, line: str) -> tuple[str, str, dict[str, Any]] | None:
        found = _LINE.search(line)
        if found is None:
            if line.strip() and len(self.noise) < 100:
                self.noise.append(line.rstrip()[:500])
            return None
        node, kind, number, of, chunk = found.groups()
        parts = self._parts.setdefault((node, kind), {})
        parts[int(number)] = chunk
        if len(parts) < int(of):
            return None
        del self._parts[node, kind]
        value = _unpack("".join(parts[n] for n in sorted(parts)))
        return (node, kind, value) if value is not None else None


def _unpack(text: str) -> dict[str, Any] | None:
    try:
        raw = zlib.decompressobj().decompress(base64.b64decode(text), _MOST_BYTES)
        value = jsonl.parse(raw)
    except (ValueError, zlib.error):
        return None
    return value if isinstance(value, dict) else None
