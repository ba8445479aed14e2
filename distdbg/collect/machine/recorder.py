"""Ask a rank for its flight recorder over the Unix socket that torch serves. This needs no GIL and no pause.

torch has two recorders in one process: ProcessGroupNCCL's, and one that all other backends share. Both answer in the
same form (torch/csrc/distributed/c10d: NCCLUtils.cpp, FlightRecorder.cpp). A process group of `cpu:gloo,cuda:nccl`,
which is what init_process_group() makes by default, writes to both.
"""

from __future__ import annotations

import itertools
import json
import re
import socket
import time
from pathlib import Path

from distdbg.model import fold_ranks

_MOST_BYTES = 64 << 20
_ENTRIES = b'"entries"'
_LONG_LIST = re.compile(rb'"ranks":"\[([0-9, ]{200,})\]"')


class RecorderFailed(Exception):
    """Says why there is no recorder's dump."""


#: NCCL's first. A build without CUDA has no handler of that name.
_HANDLERS = ("dump_nccl_trace_json", "fr_trace_json")


def ask(path: Path, within_s: float) -> bytes:
    """The recorders' JSON, as one: 10-30 ms and about 1 MB for 2,000 entries. Raises RecorderFailed."""
    if not path.exists():
        raise RecorderFailed("this rank serves none: its process group is not made, or it has no worker side")
    until = time.monotonic() + within_s
    answers, failed = [], ""
    for handler in _HANDLERS:
        try:
            answers.append(_ask(path, handler, until - time.monotonic()))
        except RecorderFailed as error:  # noqa: PERF203 -- two of them
            failed = str(error)
    if not answers:
        raise RecorderFailed(failed)
    used = [answer for answer in answers if _ENTRIES in answer]
    return _merged(*used) if len(used) > 1 else (used or answers)[0]


def _merged(nccl: bytes, others: bytes) -> bytes:
    """One dump with the entries of both. A group has the same name in both, and its own sequence numbers in each."""
    one, other = json.loads(nccl), json.loads(others)
    one["entries"] += other["entries"]
    one["pg_config"] = {**other.get("pg_config", {}), **one.get("pg_config", {})}
    return json.dumps(one, separators=(",", ":")).encode()


def _ask(path: Path, handler: str, within_s: float) -> bytes:
    if within_s <= 0:
        raise RecorderFailed("it does not answer in time")
    request = f"POST /handler/{handler}? HTTP/1.0\r\nHost: rank\r\nContent-Length: 0\r\n\r\n".encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(within_s)
        try:
            sock.connect(str(path))
            sock.sendall(request)
            answer = _read(sock)
        except TimeoutError:
            raise RecorderFailed(f"it does not answer within {within_s:.1f} s") from None
        except OSError as error:
            raise RecorderFailed(error.strerror or str(error)) from None
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b"\r\n")[0]
    if b" 200" not in status:
        raise RecorderFailed(f"it answered {status.decode('latin-1')!r}")
    return body


def folded(data: bytes) -> bytes:
    """The same with long lists of a group's ranks as ranges: in a wide job they would outweigh all else together.

    Left as it is where the order of a list is not that of its numbers, for then it says something.
    """
    return _LONG_LIST.sub(_fold, data)


def _fold(found: re.Match[bytes]) -> bytes:
    ranks = [int(number) for number in found[1].split(b",") if number.strip()]
    if any(a >= b for a, b in itertools.pairwise(ranks)):
        return found[0]
    return b'"ranks":"[%s]"' % fold_ranks(ranks).encode()


def _read(sock: socket.socket) -> bytes:
    """To the end as Content-Length says, or as the server closes."""
    data = bytearray()
    while True:
        head, found, body = bytes(data).partition(b"\r\n\r\n") if len(data) < 8192 else (b"", b"", b"")
        if found:
            for line in head.split(b"\r\n"):
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    return head + found + _rest(sock, body, int(value))
        piece = sock.recv(1 << 18)
        if not piece or len(data) > _MOST_BYTES:
            return bytes(data)
        data += piece


def _rest(sock: socket.socket, body: bytes, length: int) -> bytes:
    pieces, left = [body], min(length, _MOST_BYTES) - len(body)
    while left > 0 and (piece := sock.recv(min(left, 1 << 18))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)
