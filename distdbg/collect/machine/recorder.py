"""A rank's flight recorder, asked for over the Unix socket that torch serves: needs no GIL, and no pause."""

from __future__ import annotations

import itertools
import re
import socket
from pathlib import Path

from distdbg.model import fold_ranks

_MOST_BYTES = 64 << 20
_LONG_LIST = re.compile(rb'"ranks":"\[([0-9, ]{200,})\]"')


class RecorderFailed(Exception):
    """Says why there is no recorder's dump."""


def ask(path: Path, within_s: float) -> bytes:
    """The recorder's JSON: 10-30 ms and about 1 MB for 2,000 entries. Raises RecorderFailed."""
    if not path.exists():
        raise RecorderFailed("this rank serves none: its process group is not made, or it has no worker side")
    request = b"POST /handler/fr_trace_json? HTTP/1.0\r\nHost: rank\r\nContent-Length: 0\r\n\r\n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(within_s)
        try:
            sock.connect(str(path))
            sock.sendall(request)
            answer = _read(sock)
        except TimeoutError:
            raise RecorderFailed(f"it does not answer within {within_s:g} s") from None
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
