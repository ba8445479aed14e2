"""The calls of torch.distributed that a rank wrote down: worker/calls.py has the layout of its two files."""

from __future__ import annotations

import struct
from dataclasses import dataclass

#: so many calls are kept: a file with fewer has lost none
KEPT = 4095
NUMBERS = 32767
_PAIR = struct.Struct("@2q")
_BYTES = _PAIR.size * (KEPT + 1)


@dataclass(frozen=True)
class Call:
    """One call: `t` in ns since the epoch; `peer` is the other rank of a send or recv, or the root of a
    broadcast and its like; `line` 0 where it is unknown."""

    t: int
    operation: str
    file: str
    line: int
    function: str
    peer: int | None = None
    #: of the sends to this peer, or the receives from it, the how manyth: 1 to NUMBERS, then 1 again; 0 where unknown
    number: int = 0


_NO_SITE = ("", "", 0, "")


def read_calls(raw: bytes, sites: str) -> list[Call]:
    """Those that are still kept, oldest first; empty for what is no such file. Zeros at its end may be left out."""
    if len(raw) < _PAIR.size:
        return []
    raw = raw.ljust(_BYTES, b"\0")
    known = [_site(line) for line in sites.splitlines()]
    count = max(0, _PAIR.unpack_from(raw)[0])
    found = []
    for number in range(max(0, count - KEPT), count):
        t, word = _PAIR.unpack_from(raw, _PAIR.size * (1 + number % KEPT))
        if not t:
            continue
        site, peer = word >> 32 & 0xFFFF, (word & 0xFFFFFFFF) - 1
        operation, file, line, function = known[site - 1] if 0 < site <= len(known) else _NO_SITE
        found.append(Call(t, operation, file, line, function, peer if peer >= 0 else None, max(0, word >> 48)))
    return found


def _site(text: str) -> tuple[str, str, int, str]:
    fields = text.split("\t")
    if len(fields) != 4 or not fields[2].isdecimal():
        return _NO_SITE
    return fields[0], fields[1], int(fields[2]), fields[3]
