"""How fast a profile is read and judged, and in how much memory: a real trace, its steps again and again.

    python benchmarks/profile_read.py [--mb 50]

The trace is taken here: a small model on the CPU, with stacks and shapes. Seconds are of CPU time, of plain JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.json"
        _write_large(_trace(Path(folder) / "small.json"), path, options.mb << 20)
        seconds, steps, mib = _read(path)
        size = path.stat().st_size / (1 << 20)
    print(
        f"{size:.0f} MiB, {steps:.0f} steps: {seconds:.1f} s, {seconds / size * 1024:.0f} s/GiB, {mib:.0f} MiB in all"
    )


def _read(path: Path) -> tuple[float, float, float]:
    """CPU seconds, steps, and the peak of a process that does nothing else."""
    script = """
import resource, sys, time
from pathlib import Path
from distdbg.collect.files.trace_files import read_trace_file
begun = time.process_time()
profile = read_trace_file(Path(sys.argv[1]), "large")
print(time.process_time() - begun, profile.steps, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""
    done = subprocess.run([sys.executable, "-c", script, str(path)], check=True, capture_output=True, text=True)
    seconds, steps, mib = map(float, done.stdout.split())
    return seconds, steps, mib


def _trace(path: Path) -> dict[str, Any]:
    """torch's own, of four steps."""
    script = """
import sys, torch
from torch import nn
from torch.profiler import profile, schedule
model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(20)))
optimizer = torch.optim.AdamW(model.parameters())
plan = schedule(wait=1, warmup=1, active=4, repeat=1)
write = lambda p: p.export_chrome_trace(sys.argv[1])
with profile(with_stack=True, record_shapes=True, schedule=plan, on_trace_ready=write) as profiler:
    for _ in range(7):
        optimizer.zero_grad()
        model(torch.randn(8, 64)).mean().backward()
        optimizer.step()
        profiler.step()
"""
    subprocess.run([sys.executable, "-c", script, str(path)], check=True, capture_output=True)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _write_large(trace: dict[str, Any], path: Path, size: int) -> None:
    events = [event for event in trace.pop("traceEvents") if event.get("ph") == "X"]
    span = max(e["ts"] + e["dur"] for e in events) - min(e["ts"] for e in events)
    with path.open("w") as file:
        file.write(json.dumps(trace)[:-1] + ', "traceEvents": [')
        turn = 0
        while file.tell() < size:
            for event in events:
                file.write(("" if not turn else ",") + json.dumps(event | {"ts": event["ts"] + turn * span}, indent=2))
                turn = max(turn, 1)
            turn += 1
        file.write("]}")


if __name__ == "__main__":
    main()
