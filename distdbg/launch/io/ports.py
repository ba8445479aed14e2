"""Reserve a port for the rendezvous, so that no other process gets it before torchrun uses it."""

from __future__ import annotations

import socket


class ReservedPort:
    """Keeps a TCP port bound, not listening, until `release`.

    Linux lets a second socket bind the port only if both have SO_REUSEADDR and neither listens: libuv sets it, so
    torch's TCPStore gets the port, while everyone who asks the kernel for a free port is given another one.
    """

    def __init__(self, number: int = 0) -> None:
        """A given port, or 0 for any that is free. Raises OSError where somebody has it."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.bind(("", number))
        # Only after bind(): with it before, the kernel could deal out one port twice.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.number: int = self._socket.getsockname()[1]

    def release(self) -> None:
        self._socket.close()
