"""Hold descriptors that the script cannot notice, and that stay the script's own once it has closed them.

A daemon closes every number and opens files of its own, which get the same numbers. So a number is used and closed only
while it still names the file that it named at first, and it is forgotten before it is closed. The numbers are high: the
script's own files get the numbers that they have without us.
"""

from __future__ import annotations

import _socket
import os

#: Numbers are taken from here downwards: the script's own begin at 3, and select() takes none above.
_HIGHEST = 1023
_LOWEST = 64


class OwnDescriptor:
    """Takes over `number`, which the caller forgets. Raises OSError only from the constructor."""

    def __init__(self, number: int, *, move: bool = True) -> None:
        self._identity = os.fstat(number)
        self._number: int | None = _move_up(number) if move else number

    def number(self) -> int | None:
        """None after `close`, and if the script has closed it."""
        number = self._number
        try:
            is_ours = number is not None and os.path.samestat(os.fstat(number), self._identity)
        except OSError:
            is_ours = False
        return number if is_ours else None

    def close(self) -> None:
        number, self._number = self.number(), None
        if number is not None:
            os.close(number)


class BorrowedSocket(_socket.socket):
    """The socket functions for a number that somebody else owns: it is never closed here."""

    def __enter__(self) -> BorrowedSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def __del__(self) -> None:
        self.detach()


def find_listening_socket(path: str) -> OwnDescriptor | None:
    """The descriptor of the Unix socket that C code of this process has bound to `path`."""
    for name in os.listdir("/proc/self/fd"):
        try:
            # With SOCK_NONBLOCK the constructor leaves the mode of the script's socket alone, also if the script has
            # called socket.setdefaulttimeout().
            kind = _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK
            with BorrowedSocket(_socket.AF_UNIX, kind, fileno=int(name)) as candidate:
                if candidate.getsockname() == path:
                    return OwnDescriptor(int(name), move=False)
        except OSError:
            continue  # not a socket, or closed meanwhile
    return None


def _move_up(number: int) -> int:
    """The same file under a high number that is free; `number` itself if there is none."""
    for high in range(min(_HIGHEST, os.sysconf("SC_OPEN_MAX") - 1), _LOWEST, -1):
        try:
            os.fstat(high)
        except OSError:
            os.dup2(number, high, inheritable=False)
            os.close(number)
            return high
    return number
