"""Ask NCCL's RAS threads about a job: one per process, they answer on a port of their node.

A second source where it is there (NCCL 2.24 and later; JSON from 2.28.7): how many operations each rank has launched in
each communicator, and which processes no longer answer. Any of a node's processes may be the one that answers, also one
of another job; whose answer it is shows in the process ids in it. Source: docs.nvidia.com/deeplearning/nccl, "RAS".
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Collection
from pathlib import Path

from distdbg.collect.machine.procfs import read_environment
from distdbg.evidence.recorder.nccl_ras import read_ras, with_missing_comma
from distdbg.plain_text import whole_number

_ADDRESS = "localhost:28028"
_MOST_BYTES = 64 << 20
#: Processes of all jobs of a node may listen on one port, and the kernel picks one for each connection.
_MOST_TRIES = 16
#: Only ports of processes that use NCCL are connected to.
_LIBRARIES = ("libnccl", "libtorch_cuda")


class NoRas(Exception):
    """It is not there, or does not answer for this job."""


def ask_ras(pids: Collection[int], within_s: float) -> bytes:
    """NCCL's answer as valid JSON, in which at least one of `pids` is a member. Raises NoRas."""
    address = _address(next(iter(pids)))
    until = time.monotonic() + within_s
    for _ in range(_MOST_TRIES):
        try:
            with socket.create_connection(address, timeout=max(0.1, until - time.monotonic())) as connection:
                data = with_missing_comma(_answer(connection, until))
        except OSError as error:
            raise NoRas(f"NCCL's RAS at {address[0]}:{address[1]}: {error.strerror or error}") from None
        known = {rank.pid for communicator in read_ras(_whole(data)) for rank in communicator.ranks}
        if known & set(pids):
            return data
        if time.monotonic() >= until:
            break
    raise NoRas(f"the answer of NCCL's RAS at {address[0]}:{address[1]} is about another job")


def uses_nccl(pid: int) -> bool:
    """Raises OSError where that cannot be seen."""
    mapped = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    return any(name in mapped for name in _LIBRARIES)


def _address(pid: int) -> tuple[str, int]:
    try:
        used, environment = uses_nccl(pid), read_environment(pid)
    except OSError as error:
        raise NoRas(f"the process cannot be looked into: {error.strerror}") from None
    if not used:
        raise NoRas("the job does not use NCCL")
    if environment.get("NCCL_RAS_ENABLE") == "0":
        raise NoRas("NCCL_RAS_ENABLE=0")
    host, colon, port = environment.get("NCCL_RAS_ADDR", _ADDRESS).rpartition(":")
    number = whole_number(port)
    if not colon or number is None or number > 65535:
        raise NoRas("NCCL_RAS_ADDR is no address")
    return host.strip("[]"), number


def _answer(connection: socket.socket, until: float) -> bytes:
    """The protocol of `ncclras`, a line each way, then the answer up to the end of the connection."""
    with connection.makefile("rwb") as lines:
        for say, expect in (
            ("CLIENT PROTOCOL 2", b"SERVER PROTOCOL"),
            (f"TIMEOUT {max(1, int((until - time.monotonic()) / 2))}", b"OK"),
            ("SET FORMAT json", b"OK"),
        ):
            lines.write(f"{say}\n".encode())
            lines.flush()
            connection.settimeout(max(0.1, until - time.monotonic()))
            answer = lines.readline(1000)
            if not answer.startswith(expect):
                raise NoRas(f"{say!r} was answered with {answer[:80].decode('utf-8', 'replace').strip()!r}")
        lines.write(b"VERBOSE STATUS\n")
        lines.flush()
        data = b""
        while len(data) < _MOST_BYTES:
            connection.settimeout(max(0.1, until - time.monotonic()))
            piece = lines.read1(1 << 16)
            if not piece:
                return data
            data += piece
    raise NoRas("its answer has no end")


def _whole(data: bytes) -> object:
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(data)
    raise NoRas("its answer is not JSON")
