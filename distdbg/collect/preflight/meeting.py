"""Test TCP between nodes: reachable names and addresses, round-trip times, clock offsets.

A listener says who it is, then answers each line with its time; a long line at the end shows a path that loses large
packets. Nothing else is answered, and it listens while the preflight lasts.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterable
from typing import Any

from distdbg.collect.preflight.looking import look_all
from distdbg.collect.preflight.names import resolve
from distdbg.evidence import jsonl

_WITHIN_S = 4.0
_ROUND_TRIPS = 16
_LONG = b"x" * (256 << 10)
_MOST_LINE = 2 * len(_LONG)


class Listener:
    """Answers as `name` until `close`. `port` is the one that it got, `because` why it is not the one asked for."""

    def __init__(self, name: str, port: int) -> None:
        self.because = ""
        try:
            self._socket = _listening(port)
        except OSError as error:
            self.because = os.strerror(error.errno) if error.errno else str(error)
            self._socket = _listening(0)
        self.port: int = self._socket.getsockname()[1]
        self._name = name
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes accept(): only then does the kernel let the port go
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(_WITHIN_S)
        try:
            with connection, connection.makefile("rwb") as stream:
                while stream.readline(_MOST_LINE):
                    stream.write(json.dumps({"name": self._name, "t": time.time()}).encode() + b"\n")
                    stream.flush()
        except OSError:
            return


def _listening(port: int) -> socket.socket:
    """On both families where the kernel has both."""
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            if port and error.errno == 98:
                raise
    return socket.create_server(("", port))


def meet(peers: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Reach each peer {"name", "hostname", "addresses", "port"}: by its name where it has a hostname, and by address.

    For each {"to", "by_name": attempt or None, "by_address": attempt}. An attempt has address, ok, because, and where
    it is ok: source (our own address), rtt and offset in seconds (their clock minus ours, right to half an rtt).
    """
    known = {str(peer["name"]): peer for peer in peers}
    met = look_all({name: lambda peer=peer: _meet(peer) for name, peer in known.items()}, 4 * _WITHIN_S)  # type: ignore[misc]
    return [{"to": name, **found} for name, found in met.items()]


def _meet(peer: dict[str, Any]) -> dict[str, Any]:
    name, port = str(peer["name"]), int(peer["port"])
    by_name = None
    if peer.get("hostname"):
        addresses, because = resolve(str(peer["hostname"]))
        by_name = reach(name, addresses, port) if addresses else {"ok": False, "address": "", "because": because}
        by_name["resolved"] = addresses
        if by_name["ok"]:
            return {"by_name": by_name, "by_address": by_name}
    return {"by_name": by_name, "by_address": reach(name, [str(a) for a in peer.get("addresses", ())], port)}


def reach(name: str, addresses: Iterable[str], port: int) -> dict[str, Any]:
    """The first address that answers as `name`, else the last failure."""
    attempt: dict[str, Any] = {"ok": False, "address": "", "because": "it has no address"}
    for address in addresses:
        try:
            attempt = {"address": address, **_talk(name, address, port)}
        except TimeoutError:
            attempt = {"ok": False, "address": address, "because": f"no answer within {_WITHIN_S:g} s"}
        except (OSError, ValueError) as error:
            attempt = {"ok": False, "address": address, "because": getattr(error, "strerror", None) or str(error)}
        if attempt["ok"]:
            break
    return attempt


def _talk(name: str, address: str, port: int) -> dict[str, Any]:
    with socket.create_connection((address, port), timeout=_WITHIN_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        source = str(connection.getsockname()[0]).removeprefix("::ffff:")
        with connection.makefile("rwb") as stream:
            best: tuple[float, float] | None = None
            for _ in range(_ROUND_TRIPS):
                begun, sent = time.monotonic(), time.time()
                answer = _ask(stream, b"?")
                rtt = time.monotonic() - begun
                if answer.get("name") != name:
                    other = str(answer.get("name", "somebody else"))
                    return {"ok": False, "because": f"{other} answers there", "answered_by": other}
                if best is None or rtt < best[0]:
                    best = rtt, float(answer["t"]) - sent - rtt / 2
            try:
                _ask(stream, _LONG)
            except TimeoutError:
                return {"ok": False, "because": "short messages come through, 256 KiB do not: an MTU on the way"}
            assert best is not None
            return {"ok": True, "because": "", "source": source, "rtt": best[0], "offset": best[1]}


def _ask(stream: Any, line: bytes) -> dict[str, Any]:  # noqa: ANN401 -- a socket's file has no short name
    stream.write(line + b"\n")
    stream.flush()
    raw = stream.readline(4096)
    if not raw:
        raise ConnectionResetError(104, "the connection was closed at once")
    answer = jsonl.parse(raw)
    return answer if isinstance(answer, dict) else {}
