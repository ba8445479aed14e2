"""A node's figures in Prometheus' text format (0.0.4), as node_exporter's textfile collector and a scrape take them.

Pure. https://prometheus.io/docs/instrumenting/exposition_formats/#text-format-details
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Metric:
    """`key` is where the figure stands in a record of metrics.jsonl: of a rank, or of the node's memory."""

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

_Sample = tuple[Mapping[str, str], float]


def exposition(record: Mapping[str, Any], *, run: str, node: int, host: str) -> str:
    """`record` is a line of metrics.jsonl. What is not known is left out; a metric of which nothing is, too."""
    where = {"run": run, "node": str(node), "host": host}
    ranks = [(where | {"rank": str(told.get("rank"))}, told) for told in record.get("ranks", ())]
    memory = record.get("memory") or {}
    blocks = [_block(metric, ((labels, _figure(metric, told)) for labels, told in ranks))
              for metric in RANK]  # fmt: skip
    blocks.append(_block(PHASE, ((labels | {"phase": str(told["phase"])}, 1.0) for labels, told in ranks
                                 if told.get("phase") and told.get("alive"))))  # fmt: skip
    blocks += [_block(metric, [(where, _figure(metric, memory))]) for metric in NODE]
    blocks += _gpu_blocks(record.get("gpus") or (), where)
    blocks.append(_block(XIDS, ((where | _device(xid), _figure(XIDS, xid)) for xid in record.get("xids") or ())))
    blocks.append(_block(LOOKED, [(where, _figure(LOOKED, record))]))
    return "".join(blocks)


def _gpu_blocks(gpus: Iterable[Mapping[str, Any]], where: Mapping[str, str]) -> list[str]:
    """`rank` is there where one alone is known to be on the device."""
    told: list[tuple[Mapping[str, str], Mapping[str, Any]]] = []
    for gpu in gpus:
        ranks = gpu.get("ranks") or []
        whose = {"rank": str(ranks[0])} if len(ranks) == 1 else {}
        told.append(({**where, "gpu": str(gpu.get("index")), **whose}, gpu))
    blocks = [_block(metric, ((labels, _figure(metric, gpu)) for labels, gpu in told)) for metric in GPU]
    reasons = (({**labels, "reason": reason}, 1.0) for labels, gpu in told for reason in gpu.get("throttle", ()))
    return [*blocks, _block(THROTTLED, reasons)]


def _device(xid: Mapping[str, Any]) -> dict[str, str]:
    """By its index where that is known, else by its UUID alone."""
    index, ranks = xid.get("index", -1), xid.get("ranks") or []
    gpu = {"gpu": str(index)} if index >= 0 else {}
    whose = {"rank": str(ranks[0])} if len(ranks) == 1 else {}
    return {**gpu, "uuid": str(xid.get("uuid")), "xid": str(xid.get("xid")), **whose}


def _block(metric: Metric, samples: Iterable[tuple[Mapping[str, str], float | None]]) -> str:
    """All samples of a metric stand together, behind its HELP and TYPE."""
    lines = [f"{metric.name}{_labels(labels)} {_value(value)}\n" for labels, value in samples if value is not None]
    if not lines:
        return ""
    return f"# HELP {metric.name} {_escaped(metric.help)}\n# TYPE {metric.name} {metric.kind}\n{''.join(lines)}"


def _labels(labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{name}="{_escaped(value, quotes=True)}"' for name, value in labels.items())
    return f"{{{inside}}}"


def _escaped(text: str, *, quotes: bool = False) -> str:
    plain = text.encode("utf-8", "replace").decode().replace("\\", r"\\").replace("\n", r"\n")
    return plain.replace('"', r"\"") if quotes else plain


def _figure(metric: Metric, told: Mapping[str, Any]) -> float | None:
    """None for what is no number, or is not known (-1 epochs: no loader was heard)."""
    value = told.get(metric.key)
    if not isinstance(value, (int, float)) or not math.isfinite(value) or (metric.kind == "counter" and value < 0):
        return None
    return value * metric.scale


def _value(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
