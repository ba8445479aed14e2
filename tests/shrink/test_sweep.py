"""The sweep of docs/shrink.md measures the default command, and compares outputs by code of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
SWEEP = Path(__file__).parents[2] / "benchmarks" / "shrink_sweep.py"


def test_sweep_compares_outputs_also_of_types_without_an_auto_class(tmp_path: Path) -> None:
    rows = tmp_path / "rows.json"
    line = [sys.executable, SWEEP, "gpt2", "siglip_text_model", "--json", rows]
    done = subprocess.run(line, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    found = {row["type"]: row for row in map(json.loads, rows.read_text().splitlines())}
    assert {row["outcome"] for row in found.values()} == {"right"}, found
    assert [found[name].get("own_class", False) for name in ("gpt2", "siglip_text_model")] == [False, True], found
    assert all(row["same outputs"].startswith("pass") for row in found.values()), found
