"""A script that forks in every common way: the same bytes and the same descriptors as under plain torchrun."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.started]
PATTERNS = Path(__file__).with_name("fork_patterns.py")


def test_forks_have_the_descriptors_and_output_of_torchrun(tmp_path, distdbg, torchrun):
    for folder in ("plain", "observed"):
        (tmp_path / folder).mkdir()
    one = ("--nproc-per-node", "1")
    plain = torchrun(*one, "--redirects", "3", "--log-dir", tmp_path / "logs", PATTERNS, tmp_path / "plain")
    assert plain.code == 0, str(plain)
    observed = distdbg("launch", *one, PATTERNS, tmp_path / "observed")
    assert observed.code == 0, str(observed)
    for stream in ("stdout", "stderr"):
        (expected,) = (tmp_path / "logs").rglob(f"{stream}.log")
        (log,) = (observed.run.path / "attempts").rglob(f"ranks/*/{stream}.log")
        assert log.read_text() == expected.read_text()
        assert stream == "stderr" or expected.read_text().count("\n") > 80
    for path in (tmp_path / "plain").iterdir():
        assert (tmp_path / "observed" / path.name).read_bytes() == path.read_bytes(), path.name
    reused = list((tmp_path / "observed").glob("reused-*"))
    assert reused and not any(path.stat().st_size for path in reused)
