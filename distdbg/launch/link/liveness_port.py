"""Whether a host still answers: each side keeps a listening socket that nobody ever accepts from.

The kernel answers for a process that is stopped or stuck, so a door that does not open is the host or the wire, and
one that does open while nobody speaks is the process. Only what opened at the start says anything later: a firewall
between a login node and the others is no fault.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import time
from collections.abc import Iterable, Mapping
from typing import Any

#: A connection over a wire that works takes a round trip; TCP tries again after one second, and after three.
OPENS_WITHIN_S = 4.0


class LivenessPort:
    """Listens on a port of its own, on every address of this host."""

    def __init__(self) -> None:
        self._socket = listen(0)
        self.port: int = self._socket.getsockname()[1]

    def close(self) -> None:
        self._socket.close()


def listen(port: int) -> socket.socket:
    """On both families where the kernel has both. Raises OSError."""
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
    return socket.create_server(("", port), backlog=1024)


def own_addresses() -> list[str]:
    """Addresses that other hosts may reach this one by: what its name resolves to first, never loopback."""
    import psutil

    found = [
        address.address
        for name, addresses in sorted(psutil.net_if_addrs().items())
        for family in (socket.AF_INET, socket.AF_INET6)
        for address in addresses
        if address.family == family and not address.address.startswith(("127.", "::1", "fe80:", "169.254."))
    ]
    try:
        named = socket.gethostbyname(socket.gethostname())
    except OSError:
        named = ""
    return sorted(dict.fromkeys(found), key=lambda address: address != named)


def knock(doors: Iterable[tuple[str, int]], within_s: float = OPENS_WITHIN_S) -> Mapping[tuple[str, int], str | None]:
    """Try all at once: None for one that opened, else why it did not."""
    answers: dict[tuple[str, int], str | None] = {}
    with selectors.DefaultSelector() as selector:
        for door in doors:
            knocking, answers[door] = _begin(door)
            if knocking is not None:
                selector.register(knocking, selectors.EVENT_WRITE, door)
        deadline = time.monotonic() + within_s
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                knocking = _socket_of(key)
                answers[key.data] = _why(knocking.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
                selector.unregister(knocking)
                knocking.close()
        for key in list(selector.get_map().values()):
            answers[key.data] = f"no answer within {within_s:g} s"
            _socket_of(key).close()
    return answers


def _begin(door: tuple[str, int]) -> tuple[socket.socket | None, str | None]:
    """A connection on its way, or None and how it ended at once."""
    knocking = socket.socket(socket.AF_INET6 if ":" in door[0] else socket.AF_INET)
    knocking.setblocking(False)
    try:
        code = knocking.connect_ex(door)
    except OSError as error:
        knocking.close()
        return None, str(error)
    if code in (errno.EINPROGRESS, errno.EAGAIN):
        return knocking, "no answer"
    knocking.close()
    return None, _why(code)


def _why(code: int) -> str | None:
    return os.strerror(code) if code else None


def _socket_of(key: Any) -> socket.socket:  # noqa: ANN401 -- a SelectorKey, whose fileobj is typed as anything
    assert isinstance(key.fileobj, socket.socket)
    return key.fileobj
