"""What an agent shows to a team's Prometheus: a file for node_exporter's textfile collector, or a port on loopback.

Off unless asked for, and then nothing of this is loaded. The file is written by a thread of its own, which may hang on
its file system alone, and is removed when the node's part of the job is over: what is past shall not be scraped.
The port serves one text, which the agent replaces once a second; a client that is slow holds up only the next one.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any

from distdbg.errors import UsageError
from distdbg.launch.agent.exposition import CONTENT_TYPE, exposition
from distdbg.launch.io.disk import FROZEN_S, DiskWriter
from distdbg.protocol.agent_events import MetricsNotServed, MetricsNotWritten

if TYPE_CHECKING:
    from distdbg.launch.agent.node import Node

LOOPBACK = "127.0.0.1"
_FILE_EVERY_S = 5.0
_CLIENT_S = 2.0


def check_outlets(folder: Path | None, port: int | None, nodes: int) -> None:
    """Before a job whose nodes are all of this machine. Raises UsageError for a folder or a port that cannot serve."""
    if folder is not None and not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        raise UsageError(f"--prom-dir: {str(folder)!r} is no folder that can be written",
                         "Name the folder that node_exporter's --collector.textfile.directory names.")  # fmt: skip
    for number in range(port, port + nodes) if port is not None else ():
        _refuse_taken(number)


def _refuse_taken(port: int) -> None:
    try:
        _Server((LOOPBACK, port), _Handler).server_close()
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"--metrics-port: port {port} on {LOOPBACK} cannot be served: {error}", "Name another port."
        ) from None


class Exporter:
    """`publish` once a look; nothing of it raises or waits. `close` at the end."""

    def __init__(self, node: Node, folder: Path | None, port: int | None) -> None:
        self._node = node
        if folder is not None and not folder.is_dir():  # one of ours would be closed to node_exporter
            node.event(MetricsNotWritten(folder=str(folder), because="there is no such folder on this node"))
            folder = None
        self._disk = DiskWriter() if folder is not None else None
        self._path = folder / f"distdbg-{node.run.id}-{node.node_rank:04d}.prom" if folder is not None else None
        self._written = float("-inf")
        self._server: _Server | None = None
        if port is not None:
            try:
                self._server = _Server((LOOPBACK, port), _Handler)
                threading.Thread(target=self._server.serve_forever, args=(0.1,), name="metrics", daemon=True).start()
            except OSError as error:
                node.event(MetricsNotServed(port=port, because=str(error)))

    def publish(self, record: dict[str, Any]) -> None:
        text = exposition(record, run=self._node.run.id, node=self._node.node_rank, host=self._node.host)
        if self._server is not None:
            self._server.text = text.encode()
        now = time.monotonic()
        if self._disk is None or self._path is None or now - self._written < _FILE_EVERY_S:
            return
        if self._disk.frozen_for() < FROZEN_S:
            self._written = now
            self._disk.write_whole(self._path, text.encode(), private=False)

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        if self._disk is not None and self._path is not None and self._disk.close(deadline=1.0):
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)


class _Server(HTTPServer):
    allow_reuse_address = True
    text = b""

    def server_bind(self) -> None:
        """Without the look-up of a name for the address, which may wait for a name server."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """A client that goes away is none of ours."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _CLIENT_S

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404)
            return
        body = self.server.text  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Not into the agent's log."""
