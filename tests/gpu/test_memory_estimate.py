"""`memory estimate` against the peak of torch's own allocator, at the widths of real models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "memory_estimate.py"

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


def test_estimates_are_within_the_margin_of_the_allocators_peak(gpus, figure, tmp_path):
    """A GPT-2 with dropout and a tied head; DDP, FSDP2 full and grad, with and without checkpointing, 2 and 8 ranks."""
    written = tmp_path / "rows.json"
    command = [sys.executable, BENCHMARK, "--cuda", "--only", "gpt2", "--sample", "--json", written]
    env = {**os.environ, **gpus(devices=1, memory="80G", values=False).env}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = json.loads(written.read_text())
    assert {(r["way"], r["checkpointing"]) for r in rows} == {
        (way, on) for way in ("DDP", "FSDP2 full", "FSDP2 grad") for on in (False, True)
    }
    for row in rows:
        figure(f"peak: {row['way']}, {row['ranks']} ranks, checkpointing {row['checkpointing']}", row["measured"])
        assert abs(row["estimated"] / row["measured"] - 1) < 0.05, row
    measured = {(r["way"], r["checkpointing"]): r["measured"] for r in rows}
    assert measured["DDP", True] < 0.6 * measured["DDP", False]
    assert measured["FSDP2 full", True] < 0.6 * measured["DDP", True]
