"""A rank's line to its agent: JSON lines over a Unix socket. Never blocks the script, never raises into it.

Built on `_socket` and `_json`, the C halves: before the script runs, nothing is imported that it could have meant to
shadow, and nothing that plain Python would not have loaded.
"""

from __future__ import annotations

import _socket
import time
from _json import encode_basestring_ascii as _quote

_CONNECT_WITHIN_S = 0.5
_MOST_TEXT = 200_000  # of one text: a traceback of a deep recursion repeats itself


def encode(value: object) -> str:
    """JSON of None, bool, numbers, text, lists, tuples and dicts; anything else as its text."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        return repr(value) if abs(value) < float("inf") else "null"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(encode(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quote(str(key))}: {encode(item)}" for key, item in value.items()) + "}"
    text = str(value)
    if len(text) > _MOST_TEXT:
        text = text[: _MOST_TEXT // 2] + " […] " + text[-_MOST_TEXT // 2 :]
    return _quote(text)


class Link:
    """Raises OSError only from the constructor."""

    def __init__(self, path: str) -> None:
        self._socket: _socket.socket | None = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self._socket.settimeout(_CONNECT_WITHIN_S)
        self._socket.connect(path)
        self._socket.setblocking(True)

    def send(self, op: str, **fields: object) -> None:
        """One message, or none where the agent does not take it at once."""
        data = (encode({"op": op, "t": time.time(), **fields}) + "\n").encode()
        sock = self._socket
        while sock is not None and data:
            try:
                data = data[sock.send(data, _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL) :]
            except OSError:
                return  # full or gone: the script matters more

    def wait(self) -> bytes:
        """Block until the agent says something; empty when it has gone."""
        sock = self._socket
        try:
            return sock.recv(4096) if sock is not None else b""
        except OSError:
            return b""

    def close(self) -> None:
        """In a forked child: the line belongs to the parent."""
        sock, self._socket = self._socket, None
        if sock is not None:
            sock.close()
