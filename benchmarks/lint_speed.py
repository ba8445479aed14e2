"""How fast lint reads: lines a second of CPU time, over the files that are given, or this package's own.

    python benchmarks/lint_speed.py [PATHS…] [--rounds 3]

A file counts with all its lines; reading it from the disk does not. The slowest files are named. Then all of them
together, names followed from one into the other: in one process, then as `distdbg lint` does it, with all CPUs, without
a cache and with one.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from distdbg.collect.files.sources import find_sources
from distdbg.lint.linting import lint_files, lint_text
from distdbg.lint.script.parsing import UnreadableScript

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", default=[str(ROOT / "launch"), str(ROOT / "tests" / "lint")])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    sources = [s for s in find_sources(options.paths) if s.text]
    best: dict[str, float] = {}
    lines = {s.path: (s.text or "").count("\n") + 1 for s in sources}
    for _ in range(options.rounds):
        for source in sources:
            begun = time.process_time()
            try:
                lint_text(source.path, source.text or "")
            except UnreadableScript:
                continue
            best[source.path] = min(best.get(source.path, 1e9), time.process_time() - begun)
    begun = time.process_time()
    lint_files({s.path: s.text or "" for s in sources})
    together = time.process_time() - begun
    total = sum(lines[p] for p in best)
    print(f"{len(best)} files, {total} lines: {total / max(sum(best.values()), 1e-9):,.0f} lines a second")
    print(f"together: {sum(lines.values()) / max(together, 1e-9):,.0f} lines a second")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("without a cache", "with one"):
            begun = time.perf_counter()
            command = [sys.executable, "-m", "distdbg", "lint", *options.paths]
            subprocess.run(command, stdout=subprocess.DEVNULL, env=os.environ | {"XDG_CACHE_HOME": folder}, check=False)
            print(f"the command, {name}: {time.perf_counter() - begun:.2f} s")
    print(f"memory of the largest process: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024} MB")
    for path in sorted(best, key=lambda p: -best[p])[:3]:
        print(f"  {best[path] * 1000:6.0f} ms for {lines[path]} lines of {path}")


if __name__ == "__main__":
    main()
