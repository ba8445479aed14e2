"""CPU time and memory of `distdbg explain` on long logs: lines of steps of eight ranks, and a failure in the middle.

    python benchmarks/explain_logs.py [MB …]          # default: 10 1000

Prints one line a size: CPU seconds of the command, its largest memory, and what it found. The figures of
docs/explain.md are from here.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

FAILURE = (
    b'[rank3]: Traceback (most recent call last):\n[rank3]:   File "/work/train.py", line 88, in main\n'
    b"[rank3]:     loss.backward()\n[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
)
BLOCK_STEPS = 20_000


def steps(first: int, numbers: random.Random, *, failed: bool) -> bytes:
    """Lines as a logger of a training job writes them: no two are equal. Rank 3 is silent once it has failed."""
    ranks = 3 if failed else 8
    return "".join(
        f"2024-05-01 12:{n // 60 % 60:02d}:{n % 60:02d},{n % 1000:03d} INFO [rank{n % ranks}]: step {n} "
        f"loss {numbers.random():.5f} tokens/s {numbers.random() * 1e5:.1f} grad_norm {numbers.random():.4f}\n"
        for n in range(first, first + BLOCK_STEPS)
    ).encode()


def write_log(path: Path, size: int) -> None:
    numbers, written, failed, first = random.Random(1), 0, False, 0
    with path.open("wb") as file:
        while written < size:
            if not failed and written >= 0.4 * size:
                written, failed = written + file.write(FAILURE), True
            written += file.write(steps(first, numbers, failed=failed))
            first += BLOCK_STEPS


def measure(path: Path) -> tuple[float, float, str]:
    """(CPU seconds, MiB, finding) of the command in a process of its own."""
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen([sys.executable, "-m", "distdbg", "explain", str(path), "--json"], stdout=out)
        _, _, used = os.wait4(child.pid, 0)
        child.returncode = 0
        out.seek(0)
        findings = json.loads(out.read())["findings"]
    found = ", ".join(f"{f['id']} of ranks {f['ranks']}" for f in findings) or "nothing"
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, found


def main() -> None:
    for megabytes in map(int, sys.argv[1:] or ("10", "1000")):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "job.log"
            write_log(path, megabytes * 1_000_000)
            cpu, memory, found = measure(path)
            print(f"{megabytes:>6} MB: {cpu:6.2f} s CPU, {memory:6.0f} MiB, {found}")


if __name__ == "__main__":
    main()
