"""JSON lines over a socket, without ever blocking: launcher <-> agent, agent <-> torchrun and ranks."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any

#: A peer that does not read is cut off from more than this; the job never waits for it.
MAX_UNSENT = 4 << 20
#: One message; a traceback of a deep recursion is a few hundred KiB.
MAX_LINE = 8 << 20


class Wire:
    """One end. `receive` after the socket is readable; `closed` once the peer has gone.

    Only `receive` closes: whoever watches the descriptor must hear of it before its number is given out again.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.closed = False
        self._deaf = False
        self._unsent = bytearray()
        self._partial = bytearray()

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, message: dict[str, Any]) -> None:
        """Queue and send what the socket takes now; the rest goes with the next send or flush."""
        if self.closed or self._deaf or len(self._unsent) > MAX_UNSENT:
            return
        self._unsent += json.dumps(message, default=str).encode("utf-8", "backslashreplace") + b"\n"
        self.flush()

    def flush(self) -> None:
        while self._unsent and not self.closed:
            try:
                sent = self.sock.send(self._unsent)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:  # the peer has gone: its end stands in the socket, to be received
                self._deaf = True
                self._unsent.clear()
                return
            del self._unsent[:sent]

    def receive(self) -> list[dict[str, Any]]:
        """Every whole message that has arrived; what is not JSON is dropped."""
        self.flush()
        messages: list[dict[str, Any]] = []
        while not self.closed:
            try:
                data = self.sock.recv(1 << 16)
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
                with contextlib.suppress(ValueError):
                    message = json.loads(line)
                    if isinstance(message, dict):
                        messages.append(message)
        return messages

    def close(self) -> None:
        self.closed = True
        self.sock.close()
