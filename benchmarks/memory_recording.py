"""What `--memory` costs a step on a GPU: torch's record of its allocations with their stacks, the marks and the lines.

    python benchmarks/memory_recording.py                  short steps, then those of a transformer; a minute
    python benchmarks/memory_recording.py --json FILE      every figure also to this file

Without it and with it turn by turn; a figure is the median over the rounds, wall time with the device waited for at the
end of each turn. Short steps are the worst case: they allocate, and do nothing else. Beside them what the driver is
asked: by a rank, at most once a second (NV), and by a process of its node, every five (NVML).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from memory_watch import Session, cost

from distdbg.collect.machine.gpus import Nvml
from distdbg.worker.memory.watch import MemoryWatch

_KINDS = {"short": (8, 64, 200), "transformer": (512, 1024, 20)}


def steps(width: int, hidden: int) -> Iterator[str]:
    """An endless training loop that says where it is, as the hooks in a rank would."""
    layers = [torch.nn.TransformerEncoderLayer(hidden, 4, 4 * hidden, batch_first=True) for _ in range(4)]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    while True:
        batch = torch.randn(8, width, hidden, device="cuda")
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        yield "backward"
        loss.backward()
        yield "optimizer"
        optimizer.step()
        yield "step"


def turn(loop: Iterator[str], watch: Any, session: Session | None, count: int) -> float:  # noqa: ANN401
    """Microseconds of a step. With a session the watch hears of each phase's end."""
    subscribed = {"backward": watch._forward_ends, "optimizer": watch._backward_ends, "step": watch._step_ends}
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(3 * count):
        where = next(loop)
        if session is not None:
            session.count += where == "step"
            subscribed[where](None)
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / count * 1e6


def measure(kind: str, rounds: int) -> dict[str, float]:
    width, hidden, count = _KINDS[kind]
    loop = steps(width, hidden)
    off, on = [], []
    with tempfile.TemporaryDirectory() as folder:
        session = Session(folder)
        watch = MemoryWatch(session, range(0))  # type: ignore[arg-type]
        for _ in range(rounds + 1):  # the first is no measurement: kernels are loaded, the ring is filled
            torch.cuda.memory._record_memory_history(None)
            off.append(turn(loop, watch, None, count))
            watch.history.begin(watch.snapshots.ran_out)
            if not watch.history.recording:
                raise SystemExit("torch does not record here")
            on.append(turn(loop, watch, session, count))
        torch.cuda.memory._record_memory_history(None)
    more = statistics.median(b - a for a, b in zip(off[1:], on[1:], strict=True))
    plain = statistics.median(off[1:])
    return {"step_us": plain, "more_us": more, "more_share": more / plain, "lines": session.sent}


def asked_of_the_driver() -> dict[str, float]:
    with Nvml() as nvml:
        return {"mem_get_info_us": cost(torch.cuda.mem_get_info, 200), "nvml_us": cost(nvml.figures, 20)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("not measured: there is no CUDA device here", file=sys.stderr)
        return 0
    found = {kind: measure(kind, arguments.rounds) for kind in _KINDS}
    for kind, figure in found.items():
        print(f"{kind}: a step of {figure['step_us']:.0f} us, {figure['more_us']:+.1f} us with --memory "
              f"({100 * figure['more_share']:+.2f} %), {figure['lines']} lines")  # fmt: skip
    driver = asked_of_the_driver()
    print(f"NV, by a rank: {driver['mem_get_info_us']:.0f} us; all figures of NVML: {driver['nvml_us']:.0f} us")
    if arguments.json:
        arguments.json.write_text(json.dumps({**found, "driver": driver}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
