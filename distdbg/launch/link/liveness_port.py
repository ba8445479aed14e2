"""Whether a host still answers: each side keeps a listening socket that nobody accepts from.

The kernel accepts connections for a stopped or stuck process. So where a connection fails it is the host or the
network, and where it succeeds and the process is silent it is the process. Only a port that could be reached at the
start says anything later: a firewall between a login node and the others is no fault.
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


def connect_all(
    endpoints: Iterable[tuple[str, int]], within_s: float = OPENS_WITHIN_S
) -> Mapping[tuple[str, int], str | None]:
    """Try all at once: None for a connection, else why there is none."""
    answers: dict[tuple[str, int], str | None] = {}
    with selectors.DefaultSelector() as selector:
        for endpoint in endpoints:
            connection, answers[endpoint] = _begin(endpoint)
            if connection is not None:
                selector.register(connection, selectors.EVENT_WRITE, endpoint)
        deadline = time.monotonic() + within_s
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                connection = _socket_of(key)
                answers[key.data] = _why(connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
                selector.unregister(connection)
                connection.close()
        for key in list(selector.get_map().values()):
            answers[key.data] = f"no answer within {within_s:g} s"
            _socket_of(key).close()
    return answers


def _begin(endpoint: tuple[str, int]) -> tuple[socket.socket | None, str | None]:
    """A connection in progress, or None and how it ended at once."""
    connection = socket.socket(socket.AF_INET6 if ":" in endpoint[0] else socket.AF_INET)
    connection.setblocking(False)
    try:
        code = connection.connect_ex(endpoint)
    except OSError as error:
        connection.close()
        return None, str(error)
    if code in (errno.EINPROGRESS, errno.EAGAIN):
        return connection, "no answer"
    connection.close()
    return None, _why(code)


def _why(code: int) -> str | None:
    return os.strerror(code) if code else None


def _socket_of(key: Any) -> socket.socket:  # noqa: ANN401 -- a SelectorKey, whose fileobj is typed as anything
    assert isinstance(key.fileobj, socket.socket)
    return key.fileobj
