"""Which line of Python called torch.distributed, and when: the newest 4,000 calls of a rank, readable from outside.

The flight recorder names operations and sizes, but not the lines; and on gloo it knows nothing of send and recv. Two
files in node-local memory, beside the heartbeat page:

    <rank>.calls   word 0: calls so far; then 16 bytes a call, in a ring: time (ns since the epoch), site and peer
    <rank>.sites   a line a site, numbered from 1:  operation <tab> file <tab> line <tab> function

A call's second word is `number << 48 | site << 32 | peer + 1`. The peer is the other rank of a send or recv, or the
root of a broadcast, reduce, gather or scatter; 0 stands for none, and for a receive from anybody. The number counts the
sends to this peer, or the receives from it, from 1 to 32767 and anew: a ring forgets, and what two ranks have begun
must be comparable. The call number n (from 0) stands in place n % CALLS. A call is written down before it begins, so a
rank that hangs in one shows it. evidence/calls.py reads them.
"""

from __future__ import annotations

import mmap
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any

    from distdbg.worker.bus import Bus
    from distdbg.worker.page import PageWriter

#: How many calls are kept; with the word before them they fill 64 KiB.
CALLS = 4095
_BYTES = 16 * (CALLS + 1)
#: Sites beyond so many share number 0, which has no line: code that is made anew all the time.
_MOST_SITES = 4096
_NUMBERS = 32767
#: Functions of torch.distributed that talk to one other rank, with the argument that names it. Within a
#: batch_isend_irecv each of them is a call of its own.
_PEERS = {"send": "dst", "isend": "dst", "recv": "src", "irecv": "src"}
#: Those that one rank of the group is the root of.
_ROOTS = {"broadcast": "src", "reduce": "dst", "gather": "dst", "scatter": "src"}
_NAMED = _PEERS | _ROOTS


class CallLog:
    """The rank's side. Raises OSError only from the constructor."""

    def __init__(self, stem: str) -> None:
        descriptor = os.open(f"{stem}.calls", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, _BYTES)
            self._words = memoryview(mmap.mmap(descriptor, _BYTES)).cast("q")
        finally:
            os.close(descriptor)
        self._file = os.open(f"{stem}.sites", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._transfers: dict[tuple[bool, int], int] = {}
        self._sites: dict[tuple[int, int, int], int] = {}
        self._kept: list[CodeType] = []  # a code object's id is its name only while it lives

    def subscribe(self, bus: Bus, page: PageWriter) -> None:
        words, sites, now, count_one = self._words, self._sites, time.time_ns, page.caller()
        transfers = self._transfers

        def called(frame: FrameType) -> None:
            """`frame` runs a function of torch.distributed; others of its module may stand between it and the user."""
            name = frame.f_code.co_name
            torchs = frame.f_globals
            operation, caller = frame, frame.f_back
            while caller is not None and (caller.f_globals is torchs or caller.f_code.co_name == "wrapper"):
                if caller.f_globals is torchs:
                    operation = caller
                caller = caller.f_back
            if caller is None:
                return
            if name in _PEERS:
                operation = frame
            key = (id(caller.f_code), caller.f_lasti, id(operation.f_code))
            site = sites.get(key)
            if site is None:
                site = sites[key] = self._new_site(operation.f_code.co_name, caller, operation.f_code)
            peer, transfer = -1, 0
            if name in _NAMED:
                peer = _peer(name, frame)
                if name in _PEERS and peer >= 0:
                    way = name.endswith("send"), peer
                    transfer = transfers[way] = transfers.get(way, 0) % _NUMBERS + 1
            number = words[0]
            at = 2 * (1 + number % CALLS)
            words[at] = now()
            words[at + 1] = transfer << 48 | site << 32 | peer + 1
            words[0] = number + 1
            count_one()

        bus.subscribe("call", called)

    def close(self) -> None:
        """In a forked child: the files are its parent's."""
        os.close(self._file)

    def _new_site(self, operation: str, caller: FrameType, code: CodeType) -> int:
        number = len(self._sites) + 1
        if number >= _MOST_SITES:
            return 0
        self._kept += (caller.f_code, code)
        fields = operation, caller.f_code.co_filename, str(caller.f_lineno), caller.f_code.co_name
        line = "\t".join(field.replace("\t", " ").replace("\n", " ") for field in fields) + "\n"
        os.write(self._file, line.encode("utf-8", "surrogateescape"))
        return number


def _peer(name: str, frame: FrameType) -> int:
    """The global rank of the other side or the root, -1 where it is not known."""
    variables: dict[str, Any] = frame.f_locals
    argument = _NAMED[name]
    peer = variables.get(argument)
    if peer is None:
        peer = _global_rank(variables.get("group"), variables.get(f"group_{argument}"), frame.f_globals)
    return peer if type(peer) is int and 0 <= peer < 2**31 else -1


def _global_rank(group: object, rank: object, torchs: dict[str, Any]) -> object:
    """`rank` counts within the group: P2POp, and so batch_isend_irecv and pipelines, give it in that way."""
    members = torchs["_pg_group_ranks"].get(group) if group is not None else None
    if members is None:  # of all ranks, or none that we know
        return rank
    return next((everywhere for everywhere, within in members.items() if within == rank), -1)
