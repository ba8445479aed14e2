"""Export a node's figures for Prometheus: a file for node_exporter's textfile collector, or a port on loopback.

Off unless asked for, and then nothing of this is loaded. The file is written by a thread of its own, which may hang on
its file system alone, and is removed when the node's part of the job is over: what is past shall not be scraped.
The port serves one text, which the agent replaces once a second; a client that is slow holds up only the next one.

`exposition` writes Prometheus' text format (0.0.4):
https://prometheus.io/docs/instrumenting/exposition_formats/#text-format-details
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any, Literal

from distdbg.errors import UsageError
from distdbg.launch.io.disk import FROZEN_S, DiskWriter
from distdbg.protocol.agent_events import MetricsNotServed, MetricsNotWritten

if TYPE_CHECKING:
    from distdbg.launch.agent.node import Node

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LOOPBACK = "127.0.0.1"
_FILE_EVERY_S = 5.0
_CLIENT_S = 2.0


@dataclass(frozen=True)
class Metric:
    """`key` is the figure's key in a record of metrics.jsonl: of a rank, or of the node's memory."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    key: str
    scale: float = 1.0


RANK = (
    Metric("distdbg_rank_alive", "gauge", "1 while the rank's process lives.", "alive"),
    Metric("distdbg_rank_steps_total", "counter", "Steps of the optimizer, or as the script counts them.", "step"),
    Metric("distdbg_rank_steps_per_second", "gauge", "Steps a second over the last second.", "rate"),
    Metric("distdbg_rank_step_seconds", "gauge", "Median time of the newest steps.", "step_ms", 1e-3),
    Metric("distdbg_rank_late_seconds", "gauge", "How much later than its node's first it comes.", "late_ms", 1e-3),
    Metric("distdbg_rank_data_wait_ratio", "gauge", "Part of the newest steps in waiting for data.", "data_wait"),
    Metric("distdbg_rank_epochs_total", "counter", "Ends of passes over DataLoaders with steps in them.", "epochs"),
    Metric("distdbg_rank_resident_memory_bytes", "gauge", "Resident memory of the rank's process.", "rss"),
    Metric("distdbg_rank_anonymous_memory_bytes", "gauge", "Of it, what is no file's and not shared.", "anon"),
    Metric("distdbg_rank_cpu_seconds_total", "counter", "CPU time of the rank's process.", "cpu"),
    Metric("distdbg_rank_exit_code", "gauge", "How the rank ended: negative for a signal.", "exit_code"),
)

PHASE = Metric("distdbg_rank_phase", "gauge", "1 for the phase that the rank is in.", "phase")

NODE = (
    Metric("distdbg_node_memory_available_bytes", "gauge", "Memory that the machine can still give.", "available"),
    Metric("distdbg_node_cgroup_memory_bytes", "gauge", "Memory that the job's control group uses.", "current"),
    Metric("distdbg_node_cgroup_limit_bytes", "gauge", "The control group's limit.", "limit"),
    Metric("distdbg_node_oom_kills_total", "counter", "Memory kills in the control group.", "oom_kill"),
)

GPU = (
    Metric("distdbg_gpu_busy_ratio", "gauge", "Part of the last second in which a kernel ran.", "utilisation", 1e-2),
    Metric("distdbg_gpu_memory_used_bytes", "gauge", "Memory in use of the device, by everybody.", "memory_used"),
    Metric("distdbg_gpu_memory_bytes", "gauge", "Memory of the device.", "memory_total"),
    Metric("distdbg_gpu_temperature_celsius", "gauge", "Temperature of the device.", "temperature"),
    Metric("distdbg_gpu_power_watts", "gauge", "Power that the device draws.", "power"),
    Metric("distdbg_gpu_uncorrected_errors_total", "counter", "Errors that ECC did not correct.", "ecc_uncorrected"),
)

THROTTLED = Metric("distdbg_gpu_throttled", "gauge", "1 for each reason for which clocks are lowered.", "throttle")

XIDS = Metric("distdbg_gpu_xids_total", "counter", "Xids of the device since the job began.", "count")

LOOKED = Metric("distdbg_node_last_look_timestamp_seconds", "gauge", "When the agent last looked at its ranks.", "t")


def exposition(record: Mapping[str, Any], *, run: str, node: int, host: str) -> str:
    """`record` is a line of metrics.jsonl. Unknown figures are left out, and metrics without any."""
    where = {"run": run, "node": str(node), "host": host}
    ranks = [(where | {"rank": str(row.get("rank"))}, row) for row in record.get("ranks", ())]
    memory = record.get("memory") or {}
    blocks = [_block(metric, ((labels, _figure(metric, row)) for labels, row in ranks)) for metric in RANK]
    phases = [(labels | {"phase": str(t["phase"])}, 1.0) for labels, t in ranks if t.get("phase") and t.get("alive")]
    blocks.append(_block(PHASE, phases))
    blocks += [_block(metric, [(where, _figure(metric, memory))]) for metric in NODE]
    blocks += _gpu_blocks(record.get("gpus") or (), where)
    xids = [
        (where | _device(x) | {"uuid": str(x.get("uuid")), "xid": str(x.get("xid"))}, x)
        for x in record.get("xids") or ()
    ]
    blocks.append(_block(XIDS, ((labels, _figure(XIDS, xid)) for labels, xid in xids)))
    blocks.append(_block(LOOKED, [(where, _figure(LOOKED, record))]))
    return "".join(blocks)


def _gpu_blocks(gpus: Iterable[Mapping[str, Any]], where: dict[str, str]) -> list[str]:
    devices = [(where | _device(gpu), gpu) for gpu in gpus]
    blocks = [_block(metric, ((labels, _figure(metric, gpu)) for labels, gpu in devices)) for metric in GPU]
    reasons = (({**labels, "reason": reason}, 1.0) for labels, gpu in devices for reason in gpu.get("throttle", ()))
    return [*blocks, _block(THROTTLED, reasons)]


def _device(record: Mapping[str, Any]) -> dict[str, str]:
    """`gpu` where its index is known; `rank` where it is known that no other rank is on the device."""
    index, ranks = record.get("index", -1), record.get("ranks") or []
    return ({"gpu": str(index)} if index >= 0 else {}) | ({"rank": str(ranks[0])} if len(ranks) == 1 else {})


def _block(metric: Metric, samples: Iterable[tuple[Mapping[str, str], float | None]]) -> str:
    """All samples of a metric are together, after its HELP and TYPE."""
    lines = []
    for labels, value in samples:
        if value is not None:
            inside = ",".join(f'{name}="{_escaped(text, quotes=True)}"' for name, text in labels.items())
            figure = int(value) if float(value).is_integer() else float(value)
            lines.append(f"{metric.name}{{{inside}}} {figure}\n")
    if not lines:
        return ""
    return f"# HELP {metric.name} {_escaped(metric.help)}\n# TYPE {metric.name} {metric.kind}\n{''.join(lines)}"


def _escaped(text: str, *, quotes: bool = False) -> str:
    plain = text.encode("utf-8", "replace").decode().replace("\\", r"\\").replace("\n", r"\n")
    return plain.replace('"', r"\"") if quotes else plain


def _figure(metric: Metric, row: Mapping[str, Any]) -> float | None:
    """None for what is no number, or is not known (-1 epochs: no loader was seen)."""
    value = row.get(metric.key)
    if not isinstance(value, (int, float)) or not math.isfinite(value) or (metric.kind == "counter" and value < 0):
        return None
    return value * metric.scale


def check_outlets(folder: Path | None, port: int | None, nodes: int) -> None:
    """Check the folder and the port before a job whose nodes are all on this machine. Raises UsageError where one
    cannot be used."""
    if folder is not None and not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        raise UsageError(f"--prom-dir: {str(folder)!r} is no folder that can be written",
                         "Name the folder that node_exporter's --collector.textfile.directory names.")  # fmt: skip
    for number in range(port, port + nodes) if port is not None else ():
        try:
            _MetricsServer((LOOPBACK, number), _Handler).server_close()
        except (OSError, OverflowError) as error:  # noqa: PERF203 -- one port a node
            raise UsageError(
                f"--metrics-port: port {number} on {LOOPBACK} cannot be served: {error}", "Name another port."
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
        self._server: _MetricsServer | None = None
        if port is not None:
            try:
                self._server = _MetricsServer((LOOPBACK, port), _Handler)
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


class _MetricsServer(HTTPServer):
    allow_reuse_address = True
    text = b""

    def server_bind(self) -> None:
        """Bind without the look-up of the address's name, which may wait for a name server."""
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
