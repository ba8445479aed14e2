"""All ranks' profiles merged into one file: seconds a gigabyte of trace, and the most memory that it takes.

    python benchmarks/profile_merge.py                     64 traces of 50 MB: some minutes
    python benchmarks/profile_merge.py --ranks 8 --mb 20   a small one
    python benchmarks/profile_merge.py --hosts 2           the clocks of two hosts are compared, too
    python benchmarks/profile_merge.py --check             exit code 1 over a minute a gigabyte, or 150 MB of memory
    python benchmarks/profile_merge.py --json FILE

The trace is a real one: steps of a small transformer on the CPU, with shapes and Python stacks, until it has the size
that is asked for. Each rank has the same file, packed as a run has it; sizes and speed are those of the unpacked trace.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import shutil
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from distdbg.collect.files.profile_merging import RankTrace, merge

MOST_S_A_GB, MOST_MB = 60.0, 150


def real_trace(path: Path, size: int) -> int:
    """Write one of about `size` bytes, packed; give how large it is unpacked. Raises ImportError without torch."""
    import torch

    torch.set_num_threads(1)
    layer = torch.nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

    def steps(count: int) -> None:
        with torch.profiler.profile(record_shapes=True, with_stack=True) as profile:
            for _ in range(count):
                model(torch.randn(2, 8, 32)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
        profile.export_chrome_trace(str(path.with_suffix(".raw")))

    steps(2)
    steps(max(2, 2 * size // path.with_suffix(".raw").stat().st_size))
    with path.with_suffix(".raw").open("rb") as raw, gzip.open(path, "wb", 1) as packed:
        shutil.copyfileobj(raw, packed, 1 << 20)
    found = path.with_suffix(".raw").stat().st_size
    path.with_suffix(".raw").unlink()
    return found


def measure(folder: Path, ranks: int, megabytes: int, hosts: int) -> dict[str, float]:
    """Seconds a GB, and MB of this process at its largest."""
    one = folder / "one.json.gz"
    with ProcessPoolExecutor(1, get_context("spawn")) as other:  # torch's memory would hide what a merge takes
        size = other.submit(real_trace, one, megabytes << 20).result() * ranks
    traces = [RankTrace(rank, one, f"node{rank * hosts // ranks}") for rank in range(ranks)]
    begun, spent = time.monotonic(), time.process_time()
    merged = merge(traces, folder / "merged.json.gz", lambda _: None)
    wall, cpu = time.monotonic() - begun, time.process_time() - spent
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    gigabytes = size / 1e9
    return {
        "GB": round(gigabytes, 3), "events": merged.events, "s": round(wall, 1), "s_a_GB": round(wall / gigabytes, 1),
        "cpu_s_a_GB": round(cpu / gigabytes, 1), "peak_MB": round(peak),
        "merged_MB": round(merged.path.stat().st_size / 1e6),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--mb", type=int, default=50, help="of one trace, unpacked")
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        found = measure(Path(name), options.ranks, options.mb, options.hosts)
    print("  ".join(f"{key} {value:,}" for key, value in found.items()))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(options.check and (found["s_a_GB"] > MOST_S_A_GB or found["peak_MB"] > MOST_MB))


if __name__ == "__main__":
    sys.exit(main())
