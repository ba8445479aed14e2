"""Send JSON lines from a rank to its agent over a Unix socket. Never blocks a step, never raises into the script.

Built on `_socket` and `_json`, the C halves: before the script runs, nothing may be imported that the script could
shadow, or that plain Python would not have loaded.
"""

from __future__ import annotations

import _socket
import _thread
import sys
import time
from _json import encode_basestring_ascii as _quote

from distdbg.worker.descriptors import BorrowedSocket, OwnDescriptor

_CONNECT_WITHIN_S = 0.5
_MOST_TEXT = 200_000  # of one text: a traceback of a deep recursion repeats itself
_LAST_WORDS_S = 0.2  # the script has ended: the last messages may wait a little for the agent


def encode(value: object) -> str:
    """JSON of None, bool, numbers, text, lists, tuples and dicts; other objects as their text."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value) if abs(value) < float("inf") else "null"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(encode(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quote(str(key))}: {encode(item)}" for key, item in value.items()) + "}"
    text = str(value)
    if len(text) > _MOST_TEXT:
        text = text[: _MOST_TEXT // 2] + " […] " + text[-_MOST_TEXT // 2 :]
    return _quote(str.__str__(text))


class Link:
    """Raises OSError only from the constructor. Threads may send at the same time."""

    def __init__(self, path: str) -> None:
        self._lock = _thread.allocate_lock()
        self._unsent = b""
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        connection.settimeout(_CONNECT_WITHIN_S)
        connection.connect(path)
        self._descriptor = OwnDescriptor(connection.detach())
        self._socket = BorrowedSocket(fileno=self._descriptor.number())
        self._socket.setblocking(True)  # socket.setdefaulttimeout() of the script may have made it non-blocking

    def send(self, op: str, fields: dict[str, object], *, last_words: bool = False) -> bool:
        """One message. False where the agent does not take it at once: then it is dropped, and never sent in part.

        With `last_words` it may wait for 0.2 s.
        """
        try:
            data = (encode({"op": op, "t": time.time(), **fields}) + "\n").encode()
            if not self._lock.acquire(timeout=_LAST_WORDS_S):
                return False
            try:
                return self._send(data, time.monotonic() + (_LAST_WORDS_S if last_words else 0))
            finally:
                self._lock.release()
        except Exception:
            return False

    def _send(self, data: bytes, until: float) -> bool:
        """The rest of a line that the agent took in part is sent before any other."""
        sent = False
        while not sent and self._descriptor.number() is not None:
            head = self._unsent or data
            try:
                taken = self._socket.send(head, _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL)
            except BlockingIOError:
                if time.monotonic() >= until:
                    return False
                time.sleep(0.005)
                continue
            except OSError:
                return False
            if self._unsent:
                self._unsent = self._unsent[taken:]
            else:
                self._unsent, sent = data[taken:], True
        return sent

    def peer(self) -> int:
        """The agent's pid: the kernel knows who listens. Raises OSError."""
        if self._descriptor.number() is None:
            return 0
        credentials = self._socket.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
        return int.from_bytes(credentials[:4], sys.byteorder)

    def wait(self) -> bytes:
        """Block until the agent sends bytes; empty when it has ended, and if the script has closed the socket."""
        try:
            return self._socket.recv(4096) if self._descriptor.number() is not None else b""
        except OSError:
            return b""

    def close(self) -> None:
        """In a forked child: the line belongs to the parent."""
        self._lock = _thread.allocate_lock()  # a thread that does not exist here may hold it
        self._descriptor.close()
