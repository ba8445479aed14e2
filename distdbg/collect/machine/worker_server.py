"""Ask the worker server of a rank: an HTTP server in torch, which answers without the GIL and without a pause.

A rank that distdbg has started serves on a Unix socket. `torch.distributed.debug.start_debug_server` serves on a TCP
port in each rank, on the wildcard address of IPv6 (torch/csrc/distributed/c10d/control_plane/WorkerServer.cpp).
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_MAX_ANSWER_BYTES, _MAX_HEAD_BYTES = 64 << 20, 8192
_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,18})[ \t]*\r\n", re.IGNORECASE)
#: A listening port that does not answer within this time is not a worker server: seconds.
_ANSWERS_WITHIN_S = 1.0
#: In /proc/PID/net/tcp6.
_WILDCARD, _LISTENS = "0" * 32, "0A"
#: Every version of the worker server has this handler.
_STACKS = "dump_traceback"


class RequestFailed(Exception):
    """Says why the server did not answer."""


@dataclass(frozen=True)
class WorkerServer:
    """`address` is the path of a Unix socket, or (host, port)."""

    address: str | tuple[str, int]

    def handlers(self, within_s: float) -> list[str]:
        """The names that the server answers to. Raises RequestFailed."""
        try:
            names = json.loads(self._request("GET /handler/", within_s))
        except (ValueError, RecursionError):
            raise RequestFailed("its server does not name what it serves") from None
        return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []

    def ask(self, handler: str, within_s: float, parameters: str = "") -> bytes:
        """Raises RequestFailed."""
        return self._request(f"POST /handler/{handler}?{parameters}", within_s)

    def stacks(self, within_s: float) -> str:
        """The Python stacks of all threads as faulthandler prints them. Raises RequestFailed."""
        return self.ask(_STACKS, within_s).decode("utf-8", "replace")

    def _request(self, line: str, within_s: float) -> bytes:
        if within_s <= 0:
            raise RequestFailed("it does not answer in time")
        request = f"{line} HTTP/1.0\r\nHost: rank\r\nContent-Length: 0\r\n\r\n".encode()
        until = time.monotonic() + within_s
        family = socket.AF_UNIX if isinstance(self.address, str) else socket.AF_INET6
        try:
            with socket.socket(family, socket.SOCK_STREAM) as sock:
                sock.settimeout(within_s)
                sock.connect(self.address)
                sock.sendall(request)
                answer = _read(sock, until)
        except TimeoutError:
            raise RequestFailed(f"it does not answer within {within_s:.1f} s") from None
        except OSError as error:
            raise RequestFailed(error.strerror or str(error)) from None
        head, _, body = answer.partition(b"\r\n\r\n")
        status = head.split(b"\r\n")[0]
        if b" 200" not in status:
            raise RequestFailed(f"it answered {status.decode('latin-1')!r}")
        return body


def find_worker_server(pid: int) -> WorkerServer | None:
    """The server that a process listens on by TCP; None if it has none, or another network than this process.

    Connects only to ports on the wildcard address of IPv6: gloo and NCCL listen on the address of one interface.
    """
    until = time.monotonic() + _ANSWERS_WITHIN_S
    for port in _listening_ports(pid):
        server = WorkerServer(("::1", port))
        with contextlib.suppress(RequestFailed):
            if _STACKS in server.handlers(until - time.monotonic()):
                return server
    return None


def _listening_ports(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError, ValueError, IndexError):
        process = Path(f"/proc/{pid}")
        if (process / "ns/net").readlink() != Path("/proc/self/ns/net").readlink():
            return
        sockets = set(_descriptor_targets(process / "fd"))
        for row in (process / "net/tcp6").read_text().splitlines()[1:]:
            fields = row.split()
            address, _, port = fields[1].partition(":")
            if address == _WILDCARD and fields[3] == _LISTENS and f"socket:[{fields[9]}]" in sockets:
                yield int(port, 16)


def _descriptor_targets(folder: Path) -> Iterator[str]:
    for descriptor in folder.iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            yield str(descriptor.readlink())


def _read(sock: socket.socket, until: float) -> bytes:
    """Read the answer to its end, by Content-Length or until the server closes. Raises TimeoutError."""
    data, size = bytearray(), _MAX_ANSWER_BYTES
    while len(data) < size:
        if (left := until - time.monotonic()) <= 0:
            raise TimeoutError
        sock.settimeout(left)
        if not (piece := sock.recv(1 << 18)):
            break
        data += piece
        end = data.find(b"\r\n\r\n", 0, _MAX_HEAD_BYTES)
        if end >= 0 and (length := _CONTENT_LENGTH.search(data, 0, end + 2)):
            size = min(end + 4 + int(length[1]), _MAX_ANSWER_BYTES)
    return bytes(data)
