"""`distdbg memory analyze --html` against torch's own viewer, on one snapshot of a million events; memory at five.

    python benchmarks/memory_analyze.py                  both; about four minutes on two cores
    python benchmarks/memory_analyze.py --check          exit code 1 where it takes over a fifth of torch's CPU,
                                                         the page 2 MB, or five million events 3 GB
    python benchmarks/memory_analyze.py --events 200000  a smaller one, without the five million
    python benchmarks/memory_analyze.py --json FILE

The snapshot is in torch 2.13's form: 60 layers forward and backward and an optimizer in each of some 2,500 steps, 24
frames a stack, a list of frames for each allocation and each free as torch writes them, 120 bytes an event, one
planted leak. torch's side is `python -m torch.cuda._memory_viz trace_plot` and `stats`: together they give the picture
and the sums that one call gives here. CPU time is user and system of each command and its children.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

MIB = 1 << 20
LAYERS = 60
SHARE, MOST_PAGE, MOST_MEMORY = 0.2, 2_000_000, 3_000_000_000
_BASE = 0x7F0000000000


def frames(line: int, file: str, *more: str) -> list[dict[str, Any]]:
    outer = [{"name": f"call_{n}", "filename": f"/job/loop{line % 7}.py", "line": n} for n in range(20)]
    inner = [{"name": name, "filename": "??", "line": 0} for name in more]
    own = [{"name": "forward", "filename": f"/job/{file}.py", "line": line}] if not more else []
    call = {"name": "_call_impl", "filename": "/env/site-packages/torch/nn/modules/module.py", "line": 1790}
    return [*inner, *own, call, *outer] if own else inner


class Trace:
    """An allocator that gives each size its own free list: all that a trace needs."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.top, self.now = _BASE, 0
        self.spare: dict[int, list[int]] = defaultdict(list)

    def _add(self, action: str, at: int, size: int, stack: list[dict[str, Any]]) -> None:
        self.now += 5
        event = {"action": action, "addr": at, "size": size, "stream": 0, "time_us": 10**15 + self.now}
        self.events.append(event | {"compile_context": "N/A", "user_metadata": "", "pool_id": (0, 0), "frames": stack})

    def alloc(self, size: int, stack: list[dict[str, Any]]) -> int:
        at = self.spare[size].pop() if self.spare[size] else self.top
        self.top += size if at == self.top else 0
        self._add("alloc", at, size, list(stack))
        return at

    def free(self, at: int, size: int, stack: list[dict[str, Any]]) -> None:
        own = list(stack)
        self._add("free_requested", at, size, own)
        self._add("free_completed", at, size, own)
        self.spare[size].append(at)


def make(path: Path, events: int) -> None:
    gc.disable()
    trace, kept = Trace(), []
    sizes = [(1 + n % 9) * MIB for n in range(LAYERS)]
    forward = [frames(10 + n, "model") for n in range(LAYERS)]
    backward = [
        frames(n, "", f"torch::autograd::generated::Op{n}Backward0::apply()", "torch::autograd::Engine::thread_main()")
        for n in range(LAYERS)
    ]
    step = [{"name": "step", "filename": "/env/site-packages/torch/optim/adamw.py", "line": 300}]
    while len(trace.events) < events:
        saved = [trace.alloc(size, stack) for size, stack in zip(sizes, forward, strict=True)]
        kept.append(trace.alloc(3 * MIB, forward[7]))
        for n in reversed(range(LAYERS)):
            gradient = trace.alloc(sizes[n], backward[n])
            trace.free(saved[n], sizes[n], backward[n])
            trace.free(gradient, sizes[n], backward[n])
        for _ in range(10):
            trace.free(trace.alloc(2 * MIB, step), 2 * MIB, step)
    blocks, at = [], _BASE
    for begin, size, state in [*((a, 3 * MIB, "active_allocated") for a in sorted(kept)), (trace.top, 0, "inactive")]:
        if begin > at:
            blocks.append({"address": at, "size": begin - at, "requested_size": 0, "state": "inactive", "frames": []})
        if size:
            blocks.append({"address": begin, "size": size, "requested_size": size, "state": state, "frames": []})
        at = begin + size
    whole = trace.top - _BASE
    held = 3 * MIB * len(kept)
    segment = {"device": 0, "address": _BASE, "total_size": whole, "allocated_size": held, "active_size": held,
               "requested_size": held, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
               "is_expandable": False, "frames": [], "blocks": blocks}  # fmt: skip
    with path.open("wb") as file:
        pickle.dump({"segments": [segment], "device_traces": [trace.events], "allocator_settings": {},
                     "external_annotations": []}, file, 4)  # fmt: skip


def measured(*command: str, out: Path | None = None) -> dict[str, float]:
    """CPU seconds and the largest resident bytes of a command and what it waited for."""
    with (out or Path(os.devnull)).open("wb") as file:
        process = subprocess.Popen(command, stdout=file)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 10):
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return {"cpu_s": round(usage.ru_utime + usage.ru_stime, 2), "rss_bytes": usage.ru_maxrss << 10}


def one(folder: Path, events: int, *, against_torch: bool) -> dict[str, Any]:
    path, page = folder / "snapshot.pickle", folder / "page.html"
    subprocess.run([sys.executable, __file__, "--make", str(path), "--events", str(events)], check=True)
    found: dict[str, Any] = {"events": events, "file_bytes": path.stat().st_size}
    found["distdbg"] = measured(sys.executable, "-m", "distdbg", "memory", "analyze", str(path), "--html", str(page))
    found["page_bytes"] = page.stat().st_size
    if against_torch:
        viewer = (sys.executable, "-m", "torch.cuda._memory_viz")
        found["trace_plot"] = measured(*viewer, "trace_plot", str(path), "-o", str(folder / "torch.html"))
        found["stats"] = measured(*viewer, "stats", str(path))
        found["torch_page_bytes"] = (folder / "torch.html").stat().st_size
        torch_s = found["trace_plot"]["cpu_s"] + found["stats"]["cpu_s"]
        found["share"] = round(found["distdbg"]["cpu_s"] / torch_s, 3)
    path.unlink()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.make:
        make(asked.make, asked.events)
        return 0
    with tempfile.TemporaryDirectory() as name:
        results = [one(Path(name), asked.events, against_torch=True)]
        if asked.events >= 1_000_000:
            results.append(one(Path(name), 5 * asked.events, against_torch=False))
    for result in results:
        print(json.dumps(result))
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=1) + "\n")
    good = all(r["page_bytes"] < MOST_PAGE and r["distdbg"]["rss_bytes"] < MOST_MEMORY for r in results)
    return int(asked.check and not (good and results[0]["share"] <= SHARE))


if __name__ == "__main__":
    sys.exit(main())
