"""Read the calls of torch.distributed that a rank recorded: worker/calls.py has the layout of its two files."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from distdbg.evidence.ops import is_transfer
from distdbg.plain_text import whole_number

#: so many calls are kept: a file with fewer has lost none
KEPT = 4095
NUMBERS = 32767
_CALL = struct.Struct("@3q")
_BYTES = _CALL.size * (KEPT + 1)


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
    #: the sequence number among the sends to this peer, the receives from it, or the collectives of the group: 1 to
    #: NUMBERS, then 1 again; 0 where unknown
    number: int = 0
    #: of what must be equally large on every rank: elements and their type; None and empty of anything else
    size: int | None = None
    dtype: str = ""
    #: torch's name of the group; empty for that of all ranks
    group: str = ""
    #: of a collective of FSDP2: the unit's module, and forward or backward
    module: str = ""
    phase: str = ""
    #: of a send or recv; None where it is not known
    tag: int | None = None

    @property
    def at(self) -> str:
        """`train.py:30`; empty where the line is unknown."""
        return f"{self.file.rpartition('/')[2]}:{self.line}" if self.file and self.line else ""


_Site = tuple[str, str, int, str, str, str, str, str]
_NO_SITE: _Site = ("", "", 0, "", "", "", "", "")
#: Runs before the last two have less.
_LEAST_FIELDS = 6


def read_calls(raw: bytes, sites: str) -> list[Call]:
    """Those that are still kept, oldest first; empty for what is too short. Zeros at its end may be left out.

    Raises ValueError if a number is below 0, which no rank writes.
    """
    if len(raw) < _CALL.size:
        return []
    raw = raw.ljust(_BYTES, b"\0")
    known = [_site(line) for line in sites.splitlines()]
    count = _CALL.unpack_from(raw)[0]
    if count < 0:
        raise ValueError("the number of calls is below 0")
    found = []
    for number in range(max(0, count - KEPT), count):
        t, word, size = _CALL.unpack_from(raw, _CALL.size * (1 + number % KEPT))
        if not t:
            continue
        if t < 0:
            raise ValueError("the time of a call is below 0")
        site, peer = word >> 32 & 0xFFFF, (word & 0xFFFFFFFF) - 1
        operation, file, line, function, dtype, group, module, phase = (
            known[site - 1] if 0 < site <= len(known) else _NO_SITE
        )
        third = size - 1 if size > 0 else None
        elements, tag = (None, third) if is_transfer(operation) else (third, None)
        had = peer if peer >= 0 else None, max(0, word >> 48), elements
        where = dtype.removeprefix("torch."), group, module, phase
        found.append(Call(t, operation, file, line, function, *had, *where, tag))
    return found


def files_of_calls(sites: str) -> list[str]:
    """The scripts that the sites name, each once."""
    return list(dict.fromkeys(file for _, file, *_ in map(_site, sites.splitlines()) if file))


def _site(text: str) -> _Site:
    fields = text.split("\t")
    if len(fields) not in (_LEAST_FIELDS, len(_NO_SITE)) or whole_number(fields[2]) is None:
        return _NO_SITE
    operation, file, line, function, dtype, group, module, phase = (*fields, "", "")[: len(_NO_SITE)]
    return operation, file, int(line), function, dtype, group, module, phase
