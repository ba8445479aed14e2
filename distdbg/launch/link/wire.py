"""JSON lines over a socket, never blocking: launcher <-> agent, agent <-> torchrun and ranks.

An agent on another host has srun's or ssh's standard streams instead. Slurm passes on at most 1,024 bytes of a task's
line at once, and other tasks' between them: there each message is cut into short lines that say whose they are.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Mapping
from typing import Any

#: A peer that does not read is cut off from more than this; the job never waits for it.
MAX_UNSENT = 4 << 20
#: One message; a traceback of a deep recursion is a few hundred KiB.
MAX_LINE = 8 << 20


class Wire:
    """One end of a connection. Call `receive` when the socket is readable; `closed` is set once the peer has closed it.

    Only `receive` closes the socket, so that its watcher learns of that before the descriptor's number is reused.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self._begin()

    def _begin(self) -> None:
        self.closed = False
        self._peer_gone = False
        self._unsent = bytearray()
        self._partial = bytearray()

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, message: Mapping[str, Any]) -> None:
        """Queue and send what the socket takes now; the rest goes with the next send or flush."""
        if self.closed or self._peer_gone or len(self._unsent) > MAX_UNSENT:
            return
        self._unsent += self._encode(json.dumps(message, default=str).encode("utf-8", "backslashreplace"))
        self.flush()

    def _encode(self, message: bytes) -> bytes:
        return message + b"\n"

    def _write(self, data: bytearray) -> int:
        return self.sock.send(data)

    def _read(self) -> bytes:
        return self.sock.recv(1 << 16)

    def _decode(self, line: bytes) -> dict[str, Any] | None:
        message = json.loads(line)
        return message if isinstance(message, dict) else None

    def flush(self) -> None:
        while self._unsent and not self.closed:
            try:
                sent = self._write(self._unsent)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:  # the peer has gone: its end stands in the socket, to be received
                self._peer_gone = True
                self._unsent.clear()
                return
            del self._unsent[:sent]

    def receive(self) -> list[dict[str, Any]]:
        """Every whole message that has arrived; what is not JSON is dropped."""
        self.flush()
        messages: list[dict[str, Any]] = []
        while not self.closed:
            try:
                data = self._read()
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                data = b""
            if not data:
                self.close()
                break
            self._partial += data
            if len(self._partial) > MAX_LINE:
                self.close()
                break
            *lines, rest = self._partial.split(b"\n")
            self._partial = bytearray(rest)
            for line in lines:
                with contextlib.suppress(ValueError, RecursionError):
                    message = self._decode(bytes(line))
                    if message is not None:
                        messages.append(message)
        return messages

    def close(self) -> None:
        self.closed = True
        self.sock.close()


#: Of one message on one line, beside the words before it.
_FRAGMENT = 960


def fragments(node_rank: int, message: bytes) -> bytes:
    """`<node>+<part>` lines, the last one `<node>=<part>`. `message` has no newline in it."""
    parts = [message[i : i + _FRAGMENT] for i in range(0, len(message), _FRAGMENT)]
    marks = [b"+"] * (len(parts) - 1) + [b"="]
    return b"".join(b"%d%s%s\n" % (node_rank, mark, part) for mark, part in zip(marks, parts, strict=True))


class StdioWire(Wire):
    """An agent's end: descriptors `reader` and `writer`."""

    def __init__(self, node_rank: int, reader: int, writer: int) -> None:
        self._ends = reader, writer
        for descriptor in self._ends:
            os.set_blocking(descriptor, False)
        self._node_rank = node_rank
        self._begin()

    def fileno(self) -> int:
        return self._ends[0]

    def _encode(self, message: bytes) -> bytes:
        return fragments(self._node_rank, message)

    def _write(self, data: bytearray) -> int:
        return os.write(self._ends[1], data)

    def _read(self) -> bytes:
        return os.read(self._ends[0], 1 << 16)

    def close(self) -> None:
        self.closed = True
        for descriptor in self._ends:
            with contextlib.suppress(OSError):
                os.close(descriptor)


class CarrierWire(Wire):
    """The launcher's end of a carrier's streams. What it receives is {"node": whose, "event": what}.

    Lines of others (a banner, a warning of srun's) are dropped.
    """

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._parts: dict[int, bytearray] = {}

    def _decode(self, line: bytes) -> dict[str, Any] | None:
        length = len(line) - len(line.lstrip(b"0123456789"))
        if not 0 < length < 7 or line[length : length + 1] not in (b"+", b"="):
            return None
        node = int(line[:length])
        parts = self._parts.setdefault(node, bytearray())
        parts += line[length + 1 :]
        if line[length : length + 1] == b"+" and len(parts) < MAX_LINE:
            return None
        del self._parts[node]
        return {"node": node, "event": json.loads(parts)}
