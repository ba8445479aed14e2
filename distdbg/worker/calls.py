"""Record the newest 4,000 calls of torch.distributed, with their lines, in files that the agent reads.

The flight recorder has operations and sizes, but no lines; on gloo it has no send and recv; and it ends with its
process. These two files in node-local memory, beside the heartbeat page, do not:

    <rank>.calls   word 0: calls so far; then 24 bytes a call, in a ring: time (ns since the epoch), site and peer, size
    <rank>.sites   a line a site, numbered from 1:  operation, file, line, function, dtype, group, module, phase; tabs
                   between them. Of FSDP2's collectives `module` is the unit's name, `phase` is forward or backward

The second word is `number << 48 | site << 32 | peer + 1`. The peer is the other rank of a send or recv, or the
root of a broadcast, reduce, gather or scatter; 0 means none, or a receive from any rank. The number counts the sends to
this peer, or the receives from it, or the collectives of the group, from 1 to 32767 and again: a ring forgets, and the
calls of two ranks must be comparable. The third word is 1 + the tag of a send or recv, or 1 + the number of elements of
a collective that needs the same number on every rank; 0 of others. Call n (from 0) is in place n % CALLS. A call is
recorded before it begins, so a rank that hangs in one, or dies in it, shows it. The reader is
evidence/recorder/calls.py.
"""

from __future__ import annotations

import os
import time

from distdbg.evidence.ops import OPERATIONS
from distdbg.whole_file import open_own
from distdbg.worker.descriptors import OwnDescriptor
from distdbg.worker.mapping import map_new_file
from distdbg.worker.page import CALLS as CALLS_COUNT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any

    from distdbg.worker.hooks.bus import Bus
    from distdbg.worker.page import PageWriter

#: How many calls are kept; with the words before them they fill 96 KiB.
CALLS = 4095
CALLS_BYTES = 24 * (CALLS + 1)
#: Sites beyond so many share number 0, which has no line: code that is made anew all the time.
_MOST_SITES = 4096
_NUMBERS = 32767
#: Within a batch_isend_irecv each transfer is a call of its own.
_PEERS = {op.name: op.peer for op in OPERATIONS if op.peer and not op.of_objects}
#: They call send and recv, which are written down: not counted with the collectives of their group.
_TRANSFERS_OF_OBJECTS = {op.name for op in OPERATIONS if op.peer and op.of_objects}
_NAMED = _PEERS | {op.name: op.root for op in OPERATIONS if op.root and not op.of_objects}
_EQUAL = {op.name: op.equal for op in OPERATIONS if op.equal}
_MOST_PARTS = 256
_FSDP2 = "torch.distributed.fsdp._fully_shard"
#: Methods of FSDPParamGroup below which it gathers and reduces, so many frames above the collective at most.
_OF_A_UNIT, _FRAMES_ABOVE = ("unshard", "post_backward"), 6
#: by FSDP2's own TrainingState
_PHASES = {"FORWARD": "forward", "PRE_BACKWARD": "backward", "POST_BACKWARD": "backward"}
_NO_UNIT = ("", "")


class CallLog:
    """The rank's side; without a stem no other process can read it. Raises OSError only from the constructor."""

    def __init__(self, stem: str | None) -> None:
        ring = memoryview(bytearray(CALLS_BYTES)) if stem is None else map_new_file(f"{stem}.calls", CALLS_BYTES)
        self._words = ring.cast("q")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        self._file = None if stem is None else OwnDescriptor(open_own(f"{stem}.sites", flags))
        self._full = stem is None
        self._numbers: dict[object, int] = {}
        self._sites: dict[tuple[int, int, int, object, str, tuple[str, str]], int] = {}
        self._kept: list[CodeType] = []  # a code object's id is its name only while it lives

    def subscribe(self, bus: Bus, page: PageWriter) -> None:
        words, sites, now = self._words, self._sites, time.time_ns
        count_one, count_transfer = page.counter(CALLS_COUNT), page.transfer()
        numbers = self._numbers

        def called(frame: FrameType) -> None:
            """`frame` runs a function of torch.distributed; others of its module may be between it and the user."""
            name = frame.f_code.co_name
            if name in _TRANSFERS_OF_OBJECTS:
                return
            torchs = frame.f_globals
            operation, caller = frame, frame.f_back
            while caller is not None and (caller.f_globals is torchs or caller.f_code.co_name == "wrapper"):
                if caller.f_globals is torchs:
                    operation = caller
                caller = caller.f_back
            variables = frame.f_locals
            group = _group(variables.get("group"), torchs)
            if caller is None or group is None:
                return
            if name in _PEERS:
                operation = frame
                count_transfer()
            dtype, size = (None, _tag(variables)) if name in _PEERS else _brought(name, variables)
            unit = _unit(caller) if str(caller.f_globals.get("__name__")).startswith(_FSDP2) else _NO_UNIT
            key = (id(caller.f_code), caller.f_lasti, id(operation.f_code), dtype, group, unit)
            site = sites.get(key)
            if site is None:
                site = sites[key] = self._new_site(operation.f_code, caller, str(dtype or ""), group, unit)
            peer = _peer(name, variables, torchs) if name in _NAMED else -1
            number = 0
            if name not in _PEERS or peer >= 0:
                counted = (name.endswith("send"), peer) if name in _PEERS else group
                number = numbers[counted] = numbers.get(counted, 0) % _NUMBERS + 1
            count = words[0]
            at = 3 * (1 + count % CALLS)
            words[at] = now()
            words[at + 1] = number << 48 | site << 32 | peer + 1
            words[at + 2] = size + 1
            words[0] = count + 1
            count_one(frame)

        bus.subscribe("call", called)

    def close(self) -> None:
        """In a forked child: the files are its parent's."""
        self._full = True
        if self._file is not None:
            self._file.close()

    def _new_site(self, operation: CodeType, caller: FrameType, dtype: str, group: str, unit: tuple[str, str]) -> int:
        number = len(self._sites) + 1
        if self._full or number >= _MOST_SITES:
            return 0
        self._kept += (caller.f_code, operation)
        called = caller.f_code
        fields = operation.co_name, called.co_filename, str(caller.f_lineno), called.co_name, dtype, group, *unit
        line = "\t".join(field.replace("\t", " ").replace("\n", " ") for field in fields) + "\n"
        data = line.encode("utf-8", "surrogateescape")
        file = None if self._file is None else self._file.number()
        try:
            self._full = file is None or os.write(file, data) < len(data)
        except OSError:
            self._full = True
        return 0 if self._full else number  # no line may follow a cut one: it would have its number


def _unit(frame: FrameType | None) -> tuple[str, str]:
    """(name of the unit's module, phase) of a collective of FSDP2; the root's module has no name of its own."""
    for _ in range(_FRAMES_ABOVE):
        if frame is None:
            break
        if frame.f_code.co_name in _OF_A_UNIT:
            unit = frame.f_locals.get("self")
            name, state = getattr(unit, "_module_fqn", None), getattr(unit, "_training_state", None)
            return "(root)" if name == "" else str(name or ""), _PHASES.get(getattr(state, "name", ""), "")
        frame = frame.f_back
    return _NO_UNIT


def _group(group: Any, torchs: dict[str, Any]) -> str | None:
    """Torch's own name of the group, as the flight recorder has it; empty for that of all ranks, however the call names
    it; None where this rank is no member, and torch is about to warn and return."""
    if group is None:
        return ""
    member = torchs.get("GroupMember")
    if group == getattr(member, "NON_GROUP_MEMBER", None):
        return None
    return "" if group is getattr(member, "WORLD", None) else str(torchs.get("_pg_names", {}).get(group, "?"))


def _brought(name: str, variables: dict[str, Any]) -> tuple[object, int]:
    """(dtype, elements) of what must be equal; (None, -1) where nothing must, or it is no plain tensor."""
    brought: Any = variables.get(_EQUAL.get(name, ""))
    parts = brought if type(brought) is list else (brought,)
    if not parts or len(parts) > _MOST_PARTS or not all(hasattr(part, "numel") for part in parts):
        return None, -1
    size = sum(part.numel() for part in parts)
    return (parts[0].dtype, size) if type(size) is int else (None, -1)


def _tag(variables: dict[str, Any]) -> int:
    tag: Any = variables.get("tag")
    return tag if type(tag) is int and 0 <= tag < 2**31 else -1


def _peer(name: str, variables: dict[str, Any], torchs: dict[str, Any]) -> int:
    """The global rank of the other side or the root, -1 where it is not known."""
    argument = _NAMED[name]
    peer: Any = variables.get(argument)
    if peer is None:  # P2POp, and so batch_isend_irecv and pipelines, count within the group
        peer, group = variables.get(f"group_{argument}"), variables.get("group")
        members = torchs["_pg_group_ranks"].get(group) if group is not None else None
        if members is not None:  # else it is that of all ranks, or none that we know
            peer = next((everywhere for everywhere, within in members.items() if within == peer), -1)
    return peer if type(peer) is int and 0 <= peer < 2**31 else -1
