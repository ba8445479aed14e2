"""Test whether a host still answers: each side keeps a listening socket that is never accepted from.

The kernel accepts connections for a stopped or stuck process. So where a connection fails it is the host or the
network, and where it succeeds and the process is silent it is the process. Only a port that could be reached at the
start says anything later: a firewall between a login node and the others is no fault.
"""

from __future__ import annotations

import errno
import math
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from distdbg.launch.io.loop import Loop

#: A connection over a wire that works takes a round trip; TCP tries again after one second, and after three.
OPENS_WITHIN_S = 4.0
#: The answer of a host that is up, and on which no process listens on the port any more.
REFUSED = os.strerror(errno.ECONNREFUSED)
#: The launcher's pings, and how long without one is silence.
PING_EVERY_S = 4.0
SILENT_AFTER_S = 12.0
_LOOK_EVERY_S = 2.0


class ClockBounds:
    """`least_s` and `most_s`: the agent's clock is ahead of the launcher's by so many seconds, less than 0 if behind.

    The ping with the shortest round trip counts. A clock that is set while the job runs is not noticed.
    """

    def __init__(self) -> None:
        self.least_s, self.most_s = -math.inf, math.inf

    def answered(self, asked: float, answer: float, now: float) -> bool:
        """Return whether the clocks differ, and are now known twice as well as before.

        Args:
            asked: the launcher's time when it sent the ping.
            answer: the agent's time when it answered.
            now: the launcher's time when the answer arrived.
        """
        if not 0 <= now - asked < (self.most_s - self.least_s) / 2:
            return False
        self.least_s, self.most_s = answer - now, answer - asked
        return self.least_s > 0 or self.most_s < 0


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


class Lifeline:
    """In an agent: detects that the launcher's host cannot be reached any more.

    The launcher sends pings. A stopped or slow launcher sends none, and its job goes on; only a host that cannot be
    reached either is cut off, or dead. `cut` is called once, from the loop, with the seconds of silence.
    """

    def __init__(self, loop: Loop, endpoints: Sequence[tuple[str, int]], cut: Callable[[float], None]) -> None:
        self._endpoints = endpoints
        self._cut = cut
        self._last_ping = time.monotonic()
        self._closed_at: float | None = None
        self._asking: threading.Thread | None = None
        loop.every(_LOOK_EVERY_S, self._look)

    def ping(self) -> None:
        self._last_ping = time.monotonic()

    def _look(self) -> bool:
        silent = time.monotonic() - self._last_ping
        if self._closed_at is not None and self._closed_at > self._last_ping:
            self._cut(silent)
            return True
        if silent > SILENT_AFTER_S and self._endpoints and not (self._asking and self._asking.is_alive()):
            self._asking = threading.Thread(target=self._ask, name="lifeline", daemon=True)
            self._asking.start()
        return False

    def _ask(self) -> None:
        if all(connect_all(self._endpoints).values()):
            self._closed_at = time.monotonic()
