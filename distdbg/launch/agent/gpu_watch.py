"""Watch a node's GPUs: a child (gpu_look.py) asks the driver, and its answers are read without waiting."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from distdbg.collect.machine import procfs
from distdbg.launch.io.loop import Loop

_LIBRARY = "libnvidia-ml.so.1"
_DEVICES = ("/dev/nvidiactl", "/dev/dxg")
#: It speaks every five seconds; after so long without a word its figures are too old.
_SILENT_S = 20.0
_MOST_LINE = 1 << 20
_MOST_OTHERS = 3

Faults = Callable[[str, int, list[int]], None]


def may_have_gpus() -> bool:
    """Whether this machine may have GPUs, without asking the driver: a machine without any starts no child."""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return any(map(os.path.exists, _DEVICES)) or any(Path(f, _LIBRARY).exists() for f in folders if f)


class GpuWatch:
    """`start` once, `figures` at any time, `close` at the end. `fault` hears (UUID, Xid, ranks on that device)."""

    def __init__(self, loop: Loop, ranks: Callable[[], Mapping[int, int]], fault: Faults) -> None:
        self._loop, self._ranks, self._fault = loop, ranks, fault
        self._child: subprocess.Popen[bytes] | None = None
        self._rest = b""
        #: by device: the ranks that are on it
        self._users: dict[int, list[int]] = {}
        self._newest: list[dict[str, Any]] = []
        #: the ranks that ran when the newest figures were read: a process of one that has ended since is not foreign
        self._pids: set[int] = set()
        #: by UUID and number: what a line of metrics.jsonl says of an Xid
        self._xids: dict[tuple[str, int], dict[str, Any]] = {}
        self._last_answer = 0.0
        self._because = ""

    def start(self) -> None:
        """Raises nothing: without a child there are no figures."""
        words = [sys.executable, str(Path(__file__).with_name("gpu_look.py")), str(os.getpid())]
        with contextlib.suppress(OSError):
            self._child = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        if self._child is not None and self._child.stdout is not None:
            os.set_blocking(self._child.stdout.fileno(), False)
            self._last_answer = time.monotonic()
            self._loop.watch(self._child.stdout.fileno(), self._read)

    def figures(self) -> dict[str, Any]:
        """`gpus` for a line of metrics.jsonl, each with the ranks whose process it runs, or why there are none; and
        the reported `xids`, also of a device that is gone."""
        xids = {"xids": list(self._xids.values())} if self._xids else {}
        silent = time.monotonic() - self._last_answer
        if self._child is not None and silent > _SILENT_S and not self._because:
            return {"gpus": [], "gpus_because": f"NVML has not answered for {silent:.0f} s"} | xids
        if self._child is None or not self._newest:
            return ({"gpus": [], "gpus_because": self._because} if self._because else {}) | xids
        return {"gpus": [self._placed(gpu) for gpu in self._newest if self._ours(gpu)]} | xids

    def close(self) -> None:
        """A child that the driver blocks cannot be ended: it is not waited for."""
        if self._child is None:
            return
        self._child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(0.5)
        self._stop_reading()

    def _read(self) -> None:
        assert self._child is not None
        assert self._child.stdout is not None
        try:
            data = os.read(self._child.stdout.fileno(), _MOST_LINE)
        except BlockingIOError:
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                self._take(json.loads(line))
        if not data:
            self._because = self._because or "the process that asks NVML has ended"
            self._newest = []
            self._stop_reading()

    def _stop_reading(self) -> None:
        if self._child is not None and self._child.stdout is not None and not self._child.stdout.closed:
            self._loop.forget(self._child.stdout.fileno())
            self._child.stdout.close()

    def _take(self, figures: Mapping[str, Any]) -> None:
        self._newest, self._because, self._last_answer = figures["gpus"], figures["because"], time.monotonic()
        running = self._ranks()
        self._pids = set(running.values())
        for gpu in self._newest:
            pids = {process.get("pid") for process in gpu.get("processes", ())}
            if ranks := sorted(rank for rank, pid in running.items() if pid in pids):
                self._users[gpu["index"]] = ranks
            elif "because" not in gpu:  # of one that cannot be reached, those that were on it
                self._users.pop(gpu["index"], None)
        for uuid, number in figures["xids"]:
            gpu = next((gpu for gpu in self._newest if gpu.get("uuid") == uuid), {"index": -1, "uuid": uuid})
            if self._ours(gpu):
                ranks = self._users.get(gpu["index"], [])
                known = {"index": gpu["index"], "uuid": uuid, "xid": number, "ranks": ranks, "count": 0}
                self._xids.setdefault((uuid, number), known)["count"] += 1
                self._fault(uuid, number, ranks)

    def _ours(self, gpu: Mapping[str, Any]) -> bool:
        """Others may use the machine, too: it may be seen, and ranks of this job are on it, or none is known of any."""
        return _visible(gpu) and (not self._users or gpu["index"] in self._users)

    def _placed(self, gpu: Mapping[str, Any]) -> dict[str, Any]:
        """Ranks use a device whose list of processes has their pid; in a container that may be none."""
        kept = {name: value for name, value in gpu.items() if name not in ("uuid", "processes") and value != []}
        ranks = self._users.get(gpu["index"], [])
        # Processes that are no rank's, the largest first; only where the driver's numbers are our own.
        others = [process for process in gpu.get("processes", ()) if ranks and process.get("pid") not in self._pids]
        others.sort(key=lambda process: process.get("memory_used") or 0, reverse=True)
        named = [{**process, "command": procfs.command_name(process["pid"])} for process in others[:_MOST_OTHERS]]
        return {**kept, "ranks": ranks, **({"others": named} if named else {})}


def _visible(gpu: Mapping[str, Any]) -> bool:
    """Whether CUDA_VISIBLE_DEVICES lists the GPU; parts of a device (MIG) cannot be matched here."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    words = [word.strip() for word in listed.split(",")] if listed is not None else []
    if listed is None or any(word.startswith("MIG-") for word in words):
        return True
    uuid = str(gpu.get("uuid") or "")
    return str(gpu.get("index")) in words or any(w.startswith("GPU-") and uuid.startswith(w) for w in words)
